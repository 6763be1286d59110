"""The competitors: the function that appends events to a run, and the endpoint that streams them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from anyio import CancelScope
from starlette.requests import Request
from starlette.responses import Response


class App(ABC):
    """Args: url: of the Redis, for the logs that need one."""

    #: An ASGI endpoint, or a function of a request.
    endpoint: Any

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    async def start(self, stack: AsyncExitStack) -> None:
        """Connect. Enter into *stack* each context to be left at the end."""

    async def begin(self, topic: str, stack: AsyncExitStack) -> None:
        """Begin the run *topic*."""
        return

    @abstractmethod
    async def append(self, topic: str, data: str) -> object:
        """Append an event to the run *topic*."""


class OnLog(App):
    """Ours: a log, and its EventRoute."""

    log: Any

    async def start(self, stack: AsyncExitStack) -> None:
        from aiopurgatory.web import EventRoute

        self.runs: dict[str, Any] = {}
        self.endpoint = EventRoute(self.log)
        await stack.enter_async_context(self.log)

    async def begin(self, topic: str, stack: AsyncExitStack) -> None:
        self.runs[topic] = await stack.enter_async_context(self.log.run(topic))

    async def append(self, topic: str, data: str) -> object:
        return await self.runs[topic].append(data)


class OnRedisLog(OnLog):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        from aiopurgatory.streams.redis import RedisLog

        self.log = RedisLog(url)


class OnMemoryLog(OnLog):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        from aiopurgatory.streams import MemoryLog

        self.log = MemoryLog()


class BlockingReads(App):
    """sse-starlette, and `XREAD BLOCK` on a connection for each listener, which can resume after its last event."""

    async def start(self, stack: AsyncExitStack) -> None:
        from redis.asyncio import Redis

        # By default, the hundredth listener is refused, and a read fails after 5 s.
        self.redis: Any = Redis.from_url(self.url, max_connections=100_000, socket_timeout=None)
        self.producing: Any = Redis.from_url(self.url)
        for client in (self.redis, self.producing):
            stack.push_async_callback(client.aclose)

    async def append(self, topic: str, data: str) -> object:
        return await self.producing.xadd(topic, {"data": data}, maxlen=10_000, approximate=True)

    async def endpoint(self, request: Request) -> Response:
        from sse_starlette.sse import EventSourceResponse

        return EventSourceResponse(
            self.events(request.path_params["topic"], request.headers.get("last-event-id", "0")), sep="\n"
        )

    async def events(self, topic: str, last: str) -> AsyncIterator[dict[str, str]]:
        client = self.redis.client()  # its connection is not given back after each call
        try:
            while True:
                found = await client.xread({topic: last}, block=15_000)
                for _, entries in found.items() if isinstance(found, dict) else found:
                    for id_, fields in entries:
                        last = id_.decode()
                        yield {"id": last, "data": fields[b"data"].decode()}
        finally:
            with CancelScope(shield=True):
                await client.aclose()


class Queues(App):
    """sse-starlette, and a queue for each listener in the one process. Listeners get only events from now on."""

    async def start(self, stack: AsyncExitStack) -> None:
        self.queues: defaultdict[str, set[asyncio.Queue[dict[str, str]]]] = defaultdict(set)
        self.ids = count(1)

    async def append(self, topic: str, data: str) -> object:
        event = {"id": str(next(self.ids)), "data": data}
        for queue in self.queues[topic]:
            queue.put_nowait(event)
        return None

    async def endpoint(self, request: Request) -> Response:
        from sse_starlette.sse import EventSourceResponse

        return EventSourceResponse(self.events(request.path_params["topic"]), sep="\n")

    async def events(self, topic: str) -> AsyncIterator[dict[str, str]]:
        queue = asyncio.Queue[dict[str, str]]()
        self.queues[topic].add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self.queues[topic].discard(queue)


COMPETITORS: dict[str, type[App]] = {
    "RedisLog": OnRedisLog,
    "XREAD": BlockingReads,
    "MemoryLog": OnMemoryLog,
    "Queue": Queues,
}
