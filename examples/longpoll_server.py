"""Long polling over HTTP: topics in memory, polls that wait in a purgatory. python examples/longpoll_server.py

    GET /topics/{topic}?offset=N&wait=SECONDS   200 and the records from N on as soon as there are any, else 204
    POST /topics/{topic}                        appends the JSON body as a record, and answers who waits for it
    GET /statistics                             of the purgatory

As a script it serves a few clients of its own and ends. To serve others: ``Server(create_app(), port=8000).run()``.
The topics are those of one process: run one worker.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import DelayedOperation, Observer, Purgatory, PurgatoryError

MAX_WAIT = 30.0  # seconds; proxies and browsers tend to give up on a silent connection after that
MAX_POLLS = 100_000


class Poll(DelayedOperation[list[Any]]):
    """Waits until *topic* has a record at *offset*. Its result: the records from there on, none if time ran out."""

    def __init__(self, topics: dict[str, list[Any]], topic: str, offset: int, wait: float) -> None:
        if offset < 0:
            raise ValueError(f"offset must be >= 0, got {offset}")
        super().__init__(min(max(wait, 0.0), MAX_WAIT))
        self.topics, self.topic, self.offset = topics, topic, offset

    def try_complete(self) -> bool:
        return len(self.topics.get(self.topic, ())) > self.offset and self.force_complete()

    def on_complete(self) -> list[Any]:
        return self.topics.get(self.topic, [])[self.offset :]


class Topics:
    """The endpoints, and what they share."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.topics: dict[str, list[Any]] = {}
        self.purgatory = Purgatory("polls", max_pending=MAX_POLLS, observers=observers)

    async def poll(self, request: Request) -> Response:
        topic, query = request.path_params["topic"], request.query_params
        try:
            op = Poll(self.topics, topic, int(query.get("offset", 0)), float(query.get("wait", MAX_WAIT)))
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        records = await unless_client_leaves(self.purgatory.watch(op, keys=[topic]), request)
        headers = {"cache-control": "no-store"}
        return JSONResponse(records, headers=headers) if records else Response(status_code=204, headers=headers)

    async def append(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        try:
            record = await request.json()
        except ValueError as exc:
            raise HTTPException(400, f"the body must be JSON: {exc}") from exc
        log = self.topics.setdefault(topic, [])
        log.append(record)
        answered = self.purgatory.check_and_complete(topic)
        return JSONResponse({"offset": len(log) - 1, "answered": answered}, 201)

    async def statistics(self, request: Request) -> Response:
        return JSONResponse(asdict(self.purgatory.statistics()))


async def unless_client_leaves(op: Poll, request: Request) -> list[Any]:
    """The result of *op*, which is cancelled the moment that the client hangs up.

    No server cancels a handler for that. It shows in receive() alone, after the body; here, there is nobody to answer
    then.
    """

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.create_task(hang_up())
    leaving.add_done_callback(lambda _: op.cancel())
    try:
        return await op
    except asyncio.CancelledError:
        if leaving.done():
            raise ClientDisconnect from None
        raise  # it is the handler that was cancelled
    finally:
        leaving.cancel()


async def unavailable(request: Request, exc: Exception) -> Response:
    """The purgatory is closed, or full."""
    return Response(status_code=503, headers={"retry-after": "1"})


async def nobody_there(request: Request, exc: Exception) -> Response:
    return Response(status_code=499)


def create_app(observers: Iterable[Observer] = ()) -> Starlette:
    topics = Topics(observers)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with topics.purgatory:
            yield

    app = Starlette(
        routes=[
            Route("/topics/{topic}", topics.poll, methods=["GET"]),
            Route("/topics/{topic}", topics.append, methods=["POST"]),
            Route("/statistics", topics.statistics),
        ],
        exception_handlers={PurgatoryError: unavailable, ClientDisconnect: nobody_there},
        lifespan=lifespan,
    )
    app.state.purgatory = topics.purgatory
    return app


class Server(uvicorn.Server):
    """uvicorn, but told to stop it answers the parked polls. It would wait for them, and only then tell the app."""

    def __init__(self, app: Starlette, port: int = 0) -> None:
        super().__init__(uvicorn.Config(app, port=port, log_level="warning"))
        self.purgatory: Purgatory = app.state.purgatory

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.started:  # else nobody is parked yet, and the app has yet to open it
            # Not now: a signal can come in the middle of anything, the purgatory's own work included.
            asyncio.get_running_loop().call_soon_threadsafe(self.purgatory.close)


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# From here on: the clients that the script serves.


async def request(port: int, line: str, body: str = "") -> str:
    """Send one request on a connection of its own. Returns: the answer's status, Retry-After and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    try:
        answer_head, _, answer = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    wanted = [header for header in answer_head.splitlines()[1:] if header.startswith("retry-after")]
    return " ".join([answer_head.split(" ", 2)[1], *wanted, answer])


async def parked(port: int) -> int:
    statistics = json.loads((await request(port, "GET /statistics")).partition(" ")[2])
    return int(statistics["pending"])


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn raises it anew when it is through
    serving = asyncio.create_task(Server(create_app()).serve(sockets=[listener]))
    print(f"serving http://127.0.0.1:{port} on {type(asyncio.get_running_loop()).__module__.split('.')[0]}")

    start = time.monotonic()
    poll = asyncio.create_task(request(port, "GET /topics/orders?offset=0&wait=20"))
    await asyncio.sleep(0.2)
    print("POST answers", await request(port, "POST /topics/orders", '{"order": 1}'))
    print(f"answered by it after {time.monotonic() - start:.1f} s:", await poll)

    start = time.monotonic()
    answer = await request(port, "GET /topics/orders?offset=1&wait=0.3")
    print(f"timed out after {time.monotonic() - start:.1f} s:", answer)

    poll = asyncio.create_task(request(port, "GET /topics/orders?offset=1&wait=20"))
    await asyncio.sleep(0.2)
    before = await parked(port)
    poll.cancel()
    await asyncio.sleep(0.05)
    print(f"hung up: {before} poll parked before, {await parked(port)} after")

    polls = [asyncio.create_task(request(port, "GET /topics/orders?offset=1&wait=20")) for _ in range(100)]
    await asyncio.sleep(0.2)
    start = time.monotonic()
    signal.raise_signal(signal.SIGTERM)
    await serving
    answers = await asyncio.gather(*polls)
    print(f"told to stop: {len(answers)} polls answered within {time.monotonic() - start:.1f} s:", *set(answers))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
