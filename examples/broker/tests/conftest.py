"""A broker in a process of its own for the whole run, and others inside the test's process, to look into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final

import pytest

from aiopurgatory.testing import check_invariants

from ..server import Broker, BrokerSettings
from .served import Served
from .wires import Wire

ABOUT_CONNECTIONS: Final = ("test_leaving", "test_misbehaving")

Start = Callable[[BrokerSettings], Awaitable[Broker]]


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A broker that tests share, each with topics and groups of its own. It has nothing to complain of."""
    with Served() as served:
        yield served
        assert served.stop() == (0, "")


@pytest.fixture
def own_served() -> Iterator[Served]:
    """A broker to be stopped, or worse."""
    with Served() as served:
        yield served


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts brokers in this process. In the end nothing waits in them."""
    brokers: list[Broker] = []

    async def started(settings: BrokerSettings) -> Broker:
        broker = Broker(settings)
        await broker.start()
        brokers.append(broker)
        return broker

    yield started
    for broker in brokers:
        for purgatory in broker.purgatories:
            check_invariants(purgatory)
        async with asyncio.timeout(10):
            await broker.close()
        assert [purgatory.statistics().pending for purgatory in broker.purgatories] == [0] * len(broker.purgatories)


@pytest.fixture
async def broker(start: Start) -> Broker:
    """A broker in this process."""
    return await start(BrokerSettings())


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    """A connection to it."""
    async with await Wire.open(broker.port) as wire:
        yield wire


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Connections are tested on both loops, if the broker runs on the test's; for the rest, once is enough."""
    return None if item.path.stem in ABOUT_CONNECTIONS else {"asyncio": asyncio.new_event_loop}
