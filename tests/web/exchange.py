"""One HTTP request as its server has it, for apps without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiopurgatory.web.connected import Message, Scope

from .polls import settle

NOTHING = (b"x", b"y")
DISCONNECT: Message = {"type": "http.disconnect"}
EMPTY: Message = {"type": "http.request", "body": b"", "more_body": False}


def part(body: bytes, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Messages:
    """What the client of one request sends."""

    def __init__(self, *messages: Message) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.receiving = 0
        self.give(*messages)

    def give(self, *messages: Message) -> None:
        for message in messages:
            self.messages.put_nowait(message)

    def leave(self) -> None:
        self.give(DISCONNECT)

    async def receive(self) -> Message:
        self.receiving += 1
        try:
            return await self.messages.get()
        finally:
            self.receiving -= 1


class Exchange(Messages):
    """A request to *app*, and its answer."""

    def __init__(self, app: Any, *headers: tuple[bytes, bytes], given: Sequence[Message] = (), **scope: Any) -> None:
        super().__init__(*given)
        self.app = app
        self.scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": "/n",
            "query_string": b"",
            "headers": [*headers] or [(b"if-none-match", b'"0"')],
            **scope,
        }
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        assert self.receiving == 0, "two at once"
        return await super().receive()

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def start(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.run())

    async def run(self) -> None:
        await self.app(self.scope, self.receive, self.send)

    @property
    def status(self) -> int:
        start, *rest = self.sent
        assert not any(message.get("more_body") for message in rest)
        return int(start["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


async def asked(app: Any, *headers: tuple[bytes, bytes], **scope: Any) -> Exchange:
    """An exchange that has ended."""
    exchange = Exchange(app, *headers, **scope)
    await exchange.run()
    return exchange


async def parked(app: Any, *headers: tuple[bytes, bytes], **scope: Any) -> tuple[Exchange, asyncio.Task[None]]:
    exchange = Exchange(app, *headers, **scope)
    task = exchange.start()
    await settle()
    return exchange, task
