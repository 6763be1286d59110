"""A process of a chaos test: a worker that serves a log over HTTP, or a producer.

python -m streams.chaos.served worker URL LISTENER OPTIONS
python -m streams.chaos.served producer URL ACKED OPTIONS
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from aiopurgatory.streams import EventLog
from aiopurgatory.web import EventRoute, LogPolling, Policy

from ..conftest import log_at

POLICY = Policy(heartbeat=0.5, stall=2.0, retry_after=(0, 0))


def log_on(url: str, **options: Any) -> EventLog:
    """The log on the server at *url*. It notices a gap within 2.25 s."""
    return log_at(url, **{"heartbeat": 0.5, "timeout": 1.5} | options)


def worker(url: str, options: dict[str, Any]) -> Starlette:
    log = log_on(url, **options)
    return Starlette(lifespan=log.lifespan, routes=[Route("/{topic}", EventRoute(LogPolling(log, POLICY)))])


async def produce(url: str, acked: int, options: dict[str, Any]) -> None:
    """Produce ``events`` events in each of ``topics``, ``rate`` a second. Each acknowledgement is a line of *acked*."""
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


def main() -> None:
    role, url, descriptor, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    if role == "producer":
        asyncio.run(produce(url, descriptor, options))
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config = uvicorn.Config(worker(url, options), log_level="error", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
