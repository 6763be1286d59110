"""A plugin for the SDK's own tests: their bus in memory is ours, on Redis. test_mcp.py runs them with it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import mcp_bus
import pytest
from mcp.server import subscriptions as sdk
from mcp_types import SubscriptionFilter, SubscriptionsListenRequestParams

from aiopurgatory.bus.redis import RedisBus

EVERYTHING = SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)


class Listen(sdk.ListenHandler):
    """The servers of these tests have no middleware."""

    async def __call__(self, ctx: Any, params: SubscriptionsListenRequestParams) -> Any:
        mcp_bus.wanted.set(params.notifications)
        return await super().__call__(ctx, params)


class OnRedis(mcp_bus.PurgatoryBus):
    """Shares the bus of its test, which has been started: a bus announces everything when it starts."""

    started: RedisBus

    def __init__(self) -> None:
        super().__init__(self.started)

    def subscribe(self, listener: Callable[[sdk.ServerEvent], None]) -> Callable[[], None]:
        """Some of the tests subscribe without a request, and one with a listener that raises, as anyio would."""

        def tell(event: sdk.ServerEvent) -> None:
            with suppress(RuntimeError):
                listener(event)

        if mcp_bus.wanted.get(None) is None:
            mcp_bus.wanted.set(EVERYTHING)
        return super().subscribe(tell)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
async def bus(anyio_backend: str) -> AsyncIterator[None]:
    async with RedisBus(os.environ["REDIS_URL"], [], name=f"aiopurgatory.{uuid4()}") as OnRedis.started:
        yield


sdk.InMemorySubscriptionBus = OnRedis
sdk.ListenHandler = Listen
