"""A process of a chaos test: a worker that serves a log over HTTP, the control of one, or a producer.

python -m tests.streams.chaos.served worker URL LISTENER OPTIONS
python -m tests.streams.chaos.served relay URL LISTENER OPTIONS
python -m tests.streams.chaos.served producer URL ACKED OPTIONS
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from aiopurgatory.streams import EventLog, writes
from aiopurgatory.web import EventRoute, Policy

from ..conftest import log_at

POLICY = Policy(heartbeat=0.5, stall=2.0, retry_after=(0, 0))


def log_on(url: str, **options: Any) -> EventLog:
    """The log on the server at *url*. It notices a gap within 2.25 s."""
    return log_at(url, **{"heartbeat": 0.5, "timeout": 1.5} | options)


def worker(url: str, options: dict[str, Any]) -> Starlette:
    log = log_on(url, **options)
    return Starlette(lifespan=log.lifespan, routes=[Route("/{topic}", EventRoute(log, policy=POLICY))])


def relay(url: str, options: dict[str, Any]) -> Starlette:
    """The control: each listener is subscribed to its topic, as in many an app."""
    from redis.asyncio import Redis

    client = Redis.from_url(url, max_connections=1_000)

    async def events(topic: str) -> AsyncIterator[bytes]:
        async with client.pubsub() as subscription:
            await subscription.subscribe(f"aiopurgatory.{topic}")
            async for message in subscription.listen():
                if message["type"] == "message":
                    name, _, data = message["data"].decode().partition(" ")
                    yield f"event: {name}\ndata: {data}\n\n".encode()

    async def listen(request: Request) -> Response:
        return StreamingResponse(events(request.path_params["topic"]), media_type="text/event-stream")

    return Starlette(routes=[Route("/{topic}", listen)])


async def produce(url: str, acked: int, options: dict[str, Any]) -> None:
    """Produce ``events`` events in each of ``topics``, ``rate`` a second. Each acknowledgement is a line of *acked*."""
    if options["relay"]:
        await asyncio.gather(*(publish(url, topic, options) for topic in options["topics"]))
        return
    async with log_on(url, **options["log"]) as log:
        await asyncio.gather(*(run(log, topic, acked, options) for topic in options["topics"]))


async def run(log: EventLog, topic: str, acked: int, options: dict[str, Any]) -> None:
    try:
        async with log.run(topic, lease=options["lease"]) as producing:
            for number in range(options["events"]):
                await producing.append(str(number), "token")
                os.write(acked, f"{topic} {number}\n".encode())
                await asyncio.sleep(1 / options["rate"])
    except Exception as exc:
        os.write(acked, f"{topic} {type(exc).__name__}\n".encode())


async def publish(url: str, topic: str, options: dict[str, Any]) -> None:
    from redis import exceptions
    from redis.asyncio import Redis

    client = Redis.from_url(url, max_connections=1_000)
    for number in range(options["events"]):
        with suppress(exceptions.RedisError, OSError):
            await client.publish(f"aiopurgatory.{topic}", f"token {number}")
        await asyncio.sleep(1 / options["rate"])
    await client.publish(f"aiopurgatory.{topic}", "end done")


def main() -> None:
    role, url, descriptor, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    if sys.argv[5] == "generations":
        writes.next_generation = lambda page, state: state
    if role == "producer":
        asyncio.run(produce(url, descriptor, options))
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    app = {"worker": worker, "relay": relay}[role](url, options)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
