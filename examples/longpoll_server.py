"""Long polling over HTTP: topics in memory, polls in a purgatory. python examples/longpoll_server.py

    GET /topics/{topic}?offset=N&wait=SECONDS   200 and the records from N on as soon as there are any, else 204
    POST /topics/{topic}                        appends the JSON body as a record and answers the waiting polls
    GET /statistics                             the statistics of the purgatory

As a script, it serves a few clients of its own and exits. To serve others: ``Server(create_app(), port=8000).run()``.
Topics are in the memory of one process, so run one worker.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from aiopurgatory import GoneError, Observer, Purgatory
from aiopurgatory.web import LongPolling, LongPollRoute, Policy

MAX_POLLS = 100_000
POLICY = Policy(retry_after=(1, 1))


class Topics:
    """The polled state. A topic's version is the offset of its next record."""

    def __init__(self) -> None:
        self.records: dict[str, list[Any]] = {}

    def version(self, topic: str) -> str:
        return str(len(self.records.get(topic, ())))

    def read(self, topic: str, since: str | None, version: str) -> bytes:
        if int(since or 0) > int(version):
            raise GoneError(f"offset must be <= {version}, got {since}")
        return json.dumps(self.records.get(topic, [])[int(since or 0) :], separators=(",", ":")).encode()


def offset(scope: Scope) -> str:
    """The offset in the query, which is the version that the client has."""
    text = HTTPConnection(scope).query_params.get("offset", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HTTPException(400, f"offset must be a number >= 0, got {text[:50]!r}")
    return text


async def left(request: Request, exc: Exception) -> Response:
    """The answer to a client that disconnected during its upload: nobody reads it."""
    return Response(status_code=499)


def parse(body: bytes) -> Any:
    """Parse *body*. Raises: HTTPException: it is not JSON that every client can read."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not valid JSON")

    try:
        return json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as exc:
        raise HTTPException(400, f"the body must be JSON: {exc}") from exc


def create_app(observers: Iterable[Observer] = ()) -> Starlette:
    topics = Topics()
    purgatory = Purgatory("polls", max_pending=MAX_POLLS, observers=observers)
    polling = LongPolling(purgatory, topics, policy=POLICY)

    async def append(request: Request) -> Response:
        topic = request.path_params["topic"]
        record = parse(await request.body())
        records = topics.records.setdefault(topic, [])
        records.append(record)
        polling.notify(topic)
        return JSONResponse({"offset": len(records) - 1}, 201)

    async def statistics(request: Request) -> Response:
        return JSONResponse(asdict(purgatory.statistics()))

    app = Starlette(
        routes=[
            Route("/topics/{topic}", LongPollRoute(polling, since=offset), methods=["GET"]),
            Route("/topics/{topic}", append, methods=["POST"]),
            Route("/statistics", statistics),
        ],
        exception_handlers={ClientDisconnect: left},
    )
    app.state.polling = polling
    return app


class Server(uvicorn.Server):
    """A uvicorn server that logs only warnings and errors."""

    def __init__(self, app: Starlette, port: int = 0) -> None:
        super().__init__(uvicorn.Config(app, port=port, log_level="warning"))


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# The clients of the script.


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


async def until_parked(port: int, count: int) -> None:
    """Wait until the server has as many polls."""
    while True:
        statistics = json.loads((await request(port, "GET /statistics")).partition(" ")[2])
        if statistics["pending"] == count:
            return
        await asyncio.sleep(0.02)


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn raises it again when it has stopped
    serving = asyncio.create_task(Server(create_app()).serve(sockets=[listener]))
    print(f"serving http://127.0.0.1:{port} on {type(asyncio.get_running_loop()).__module__.split('.')[0]}")

    start = time.monotonic()
    poll = asyncio.create_task(request(port, "GET /topics/orders?offset=0&wait=20"))
    await until_parked(port, 1)
    print("POST answers", await request(port, "POST /topics/orders", '{"order": 1}'))
    print(f"answered by it after {time.monotonic() - start:.1f} s:", await poll)

    start = time.monotonic()
    answer = await request(port, "GET /topics/orders?offset=1&wait=0.3")
    print(f"timed out after {time.monotonic() - start:.1f} s:", answer)

    poll = asyncio.create_task(request(port, "GET /topics/orders?offset=1&wait=20"))
    await until_parked(port, 1)
    start = time.monotonic()
    poll.cancel()
    await until_parked(port, 0)
    print(f"hung up: its poll was gone within {time.monotonic() - start:.1f} s")

    polls = [asyncio.create_task(request(port, "GET /topics/orders?offset=1&wait=20")) for _ in range(100)]
    await until_parked(port, 100)
    start = time.monotonic()
    signal.raise_signal(signal.SIGTERM)
    await serving
    answers = await asyncio.gather(*polls)
    print(f"told to stop: {len(answers)} polls answered within {time.monotonic() - start:.1f} s:", *set(answers))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
