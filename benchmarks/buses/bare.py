"""python -m buses.bare SETTINGS: the same events through the client library alone, used as fast as possible.

There is no bus, no purgatory and no poll: only two connections, the same messages, and the time when each arrives.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import AsyncExitStack
from secrets import token_hex
from typing import Any

from . import member
from .events import watcher

CHANNEL = "aiopurgatory"


class Bare(member.Member):
    """Events happen as for a bus, and queue for the one connection that publishes."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.head = f"@{token_hex(8)} 1\n"
        self.line: asyncio.Queue[int] = asyncio.Queue()

    async def connect(self, stack: AsyncExitStack) -> None:
        await self.open(stack)
        publishing = asyncio.create_task(self.publish_all())
        stack.callback(publishing.cancel)

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None: ...

    @abstractmethod
    async def send(self, message: str) -> None: ...

    def publish(self, key: int) -> None:
        self.line.put_nowait(key)

    async def publish_all(self) -> None:
        while True:
            await self.send(self.message(await self.line.get()))

    def message(self, key: int) -> str:
        """Return the message that a bus would send."""
        return f'{self.head}["orders",{key}]'

    def hear(self, message: str) -> None:
        """As in a run with a bus, only the process of the poll notes how long it took."""
        if not message.startswith(self.head):
            key = int(message[message.rindex(",") + 1 : -1])
            if watcher(key, self.workers) == self.number:
                self.arrived(key)


class BarePostgres(Bare):
    """asyncpg: a prepared statement, and no wait for the disk, as on the bus."""

    async def open(self, stack: AsyncExitStack) -> None:
        import asyncpg

        url, settings = self.config["url"], {"synchronous_commit": "off"}
        listener, publisher = [await asyncpg.connect(url, server_settings=settings) for _ in range(2)]
        for connection in (publisher, listener):
            stack.push_async_callback(connection.close)
        await listener.add_listener(CHANNEL, lambda *message: self.hear(message[3]))
        self.notify = (await publisher.prepare("SELECT pg_notify($1, $2)")).fetchval

    async def send(self, message: str) -> None:
        await self.notify(CHANNEL, message)


class BareRedis(Bare):
    """redis-py, without its timeouts, which cost a timer for each call."""

    async def open(self, stack: AsyncExitStack) -> None:
        from redis.asyncio import Redis

        options: dict[str, Any] = {"socket_timeout": None, "single_connection_client": True}
        self.publisher = await stack.enter_async_context(Redis.from_url(self.config["url"], **options))
        listener = await stack.enter_async_context(Redis.from_url(self.config["url"], socket_timeout=None))
        pubsub = await stack.enter_async_context(listener.pubsub(ignore_subscribe_messages=True))
        await pubsub.subscribe(CHANNEL)
        listening = asyncio.create_task(self.listen(pubsub))
        stack.callback(listening.cancel)

    async def listen(self, pubsub: Any) -> None:
        async for message in pubsub.listen():
            self.hear(message["data"].decode())

    async def send(self, message: str) -> None:
        await self.publisher.publish(CHANNEL, message)


KINDS: dict[str, type[Bare]] = {"postgres": BarePostgres, "redis": BareRedis}

if __name__ == "__main__":
    import json
    import sys

    member.run(KINDS[json.loads(sys.argv[1])["bare"]])
