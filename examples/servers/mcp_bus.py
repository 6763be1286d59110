"""An MCP server of several workers: a change on one of them is announced to the clients of all.

    cd examples/servers && REDIS_URL=redis://127.0.0.1:6379 uvicorn --workers 3 --factory mcp_bus:from_environment

The SDK has a bus for one process. As a script, this starts a Redis and two workers, listens at one of them, and edits a
note at the other: python examples/servers/mcp_bus.py. In mcp 2.3, a bus does not learn what a client listens for, so a
middleware notes it. With the low-level `Server`: `on_subscriptions_listen=ListenHandler(bus)`, and
`server.middleware.append(note_filter)`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import astuple
from typing import Any

import mcp.types as types
from anyio.lowlevel import checkpoint
from mcp import Client
from mcp.server import MCPServer
from mcp.server import subscriptions as sdk
from mcp.server.mcpserver import Context
from mcp.shared.subscriptions import event_matches
from starlette.applications import Starlette

from aiopurgatory.bus import Bus
from aiopurgatory.bus.redis import RedisBus

KINDS = {each.__name__: each for each in (sdk.ToolsListChanged, sdk.PromptsListChanged, sdk.ResourcesListChanged)}
wanted: ContextVar[types.SubscriptionFilter] = ContextVar("wanted")


async def note_filter(ctx: Any, call_next: Any) -> Any:
    """A middleware: note what the client listens for."""
    if ctx.method == "subscriptions/listen":
        wanted.set(types.SubscriptionsListenRequestParams.model_validate(ctx.params).notifications)
    return await call_next(ctx)


class PurgatoryBus:
    """A SubscriptionBus, and a target of *bus*. After a gap, it announces all changes again: some may be missed."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._listeners: dict[Hashable, dict[object, Callable[[sdk.ServerEvent], None]]] = {}
        bus.add(self)

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        for listener in list(self._listeners.get(key, {}).values()):
            listener(event_of(key))

    def notify_all(self) -> None:
        for key in list(self._listeners):
            self.notify(key)

    async def publish(self, event: sdk.ServerEvent) -> None:
        self.bus.publish((type(event).__name__, *astuple(event)))
        await checkpoint()  # a burst of these leaves time to the streams

    def subscribe(self, listener: Callable[[sdk.ServerEvent], None]) -> Callable[[], None]:
        if (known := wanted.get(None)) is None:
            raise RuntimeError("pass middleware=[note_filter] to the server, besides subscriptions=")
        keys: list[tuple[str, ...]] = [
            (name,) for name, kind in KINDS.items() if event_matches(known, frozenset(), kind())
        ]
        keys += [("ResourceUpdated", uri) for uri in known.resource_subscriptions or ()]
        token = object()
        for key in keys:
            self._listeners.setdefault(key, {})[token] = listener

        def forget() -> None:
            for key in keys:
                among = self._listeners.get(key, {})
                among.pop(token, None)
                if not among:
                    self._listeners.pop(key, None)

        return forget


def event_of(key: Any) -> sdk.ServerEvent:
    name, *fields = key
    return sdk.ResourceUpdated(*fields) if fields else KINDS[name]()


def app(subscriptions: PurgatoryBus) -> Starlette:
    server = MCPServer("notes", subscriptions=subscriptions, middleware=[note_filter])

    @server.tool()
    async def edit(uri: str, ctx: Context) -> None:
        # In your server: change the note, commit, and then:
        await ctx.notify_resource_updated(uri)

    web = server.streamable_http_app()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with subscriptions.bus, server.session_manager.run():  # the bus first: it hears before anybody listens
            yield

    web.router.lifespan_context = lifespan
    return web


def from_environment() -> Starlette:
    return app(PurgatoryBus(RedisBus(os.environ["REDIS_URL"], [], name="aiopurgatory.mcp", replay=10_000)))


async def main() -> None:
    from alone import Redis, serving  # examples/servers/alone.py

    with Redis() as redis:
        os.environ["REDIS_URL"] = redis.url()
        async with serving(from_environment(), from_environment()) as (one, other):  # noqa: SIM117
            async with Client(f"{one}/mcp") as reader, Client(f"{other}/mcp") as writer:
                async with reader.listen(resource_subscriptions=["note://todo"]) as changes:
                    await writer.call_tool("edit", {"uri": "note://todo"})
                    print(await anext(changes))


if __name__ == "__main__":
    asyncio.run(main())
