"""python mcp_worker.py BUS URL: an MCP server on a free port, which it prints.

BUS is ours, sketch (from the SDK's page) or tuned (the same, with all that redis-py offers against outages).
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from typing import Any, Self

import mcp_bus
import uvicorn
from mcp.server.subscriptions import ServerEvent
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from aiopurgatory.bus import Bus
from aiopurgatory.bus.postgres import PostgresBus
from aiopurgatory.bus.redis import RedisBus

CHANNEL = "aiopurgatory.mcp"


class Sketch:
    """The bus that the SDK's page shows, with the reader that it leaves to the user."""

    def __init__(self, redis: Redis) -> None:
        self.bus = self
        self._redis = redis
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()

    async def publish(self, event: ServerEvent) -> None:
        await self._redis.publish(CHANNEL, json.dumps([type(event).__name__, *astuple(event)]))

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    async def read(self) -> None:
        async with self._redis.pubsub() as pubsub:
            await pubsub.subscribe(CHANNEL)
            async for message in pubsub.listen():
                self.hear(message)

    def hear(self, message: Any) -> None:
        if message is not None and message["type"] == "message":
            event = mcp_bus.event_of(json.loads(message["data"]))
            for listener in list(self._listeners.values()):
                listener(event)


class Tuned(Sketch):
    async def read(self) -> None:
        while True:
            with suppress(exceptions.RedisError, OSError):
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(CHANNEL)
                    while True:
                        self.hear(await pubsub.get_message(timeout=0.5))
            await asyncio.sleep(0.05)


def tuned(url: str) -> Redis:
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.01), 20)
    errors: Any = [exceptions.ConnectionError, exceptions.TimeoutError, OSError]
    return Redis.from_url(
        url, retry=retry, retry_on_error=errors, health_check_interval=1, socket_timeout=2, socket_keepalive=True
    )


def bus(url: str) -> Bus:
    if url.startswith("redis"):
        return RedisBus(url, [], name=CHANNEL, heartbeat=0.5, timeout=1.0, replay=10_000)
    return PostgresBus(url, [], name=CHANNEL, heartbeat=0.5, timeout=1.0)


def main(kind: str, url: str) -> None:
    subscriptions: Any
    if kind == "ours":
        subscriptions = mcp_bus.PurgatoryBus(bus(url))
    else:
        subscriptions = Sketch(Redis.from_url(url)) if kind == "sketch" else Tuned(tuned(url))
    app = mcp_bus.app(subscriptions)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
