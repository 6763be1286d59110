"""A server and an app made by hand, for each order in which things can happen."""

from __future__ import annotations

import asyncio
import functools

from aiopurgatory import Purgatory
from aiopurgatory.web.asgi import ASGIApp, LongPollApp, Scope, Send
from aiopurgatory.web.disconnect import Message, Receive

DISCONNECT: Message = {"type": "http.disconnect"}


class Server:
    """One request, as a server has it."""

    #: Is receive() one that need not be listened to in a task?
    plain = False

    def __init__(self, app: ASGIApp, purgatory: Purgatory) -> None:
        self.app = LongPollApp(app, purgatory)
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.receiving = 0

    async def receive(self) -> Message:
        assert self.receiving == 0, "two at once"
        self.receiving += 1
        try:
            return await self.messages.get()
        finally:
            self.receiving -= 1

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def body(self, *parts: bytes, more: bool = False) -> None:
        for i, part in enumerate(parts):
            self.messages.put_nowait({"type": "http.request", "body": part, "more_body": more or i + 1 < len(parts)})

    def start(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.run())

    async def run(self) -> None:
        receive = functools.partial(self.receive)
        if self.plain:
            receive.__module__ = "uvicorn.protocols.http"
        await self.app({"type": "http"}, receive, self.send)

    @property
    def statuses(self) -> list[int]:
        return [message["status"] for message in self.sent if "status" in message]


class App:
    """Notes what happens to it."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps
        self.seen: list[str] = []
        self.gate = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            for step in self.steps:
                if step == "wait":
                    await self.gate.wait()
                elif step == "pause":
                    await settle()
                elif step == "receive":
                    message = await receive()
                    self.seen.append(message["type"].removeprefix("http.") + message.get("body", b"").decode()[:9])
                else:
                    await self.respond(step, send)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def respond(self, step: str, send: Send) -> None:
        if step in ("answer", "begin"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if step == "answer":
            await send({"type": "http.response.body", "body": b""})


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
