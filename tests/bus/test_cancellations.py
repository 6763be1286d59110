"""Cancelled and closed at any await, against real servers: no cancellation is lost, and nothing stays behind."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from private_servers import Server

from aiopurgatory.bus import BusClosedError
from aiopurgatory.bus.engine import CHANNEL, Engine, Link

from .servers import bus_on, engine_on, no_connections
from .waits import until

#: How often each is tried, if all of it: a connection to PostgreSQL takes 10 ms.
TIMES = {"redis": 300, "postgres": 100}

each_share = pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.chaos)], ids=["a_fifth", "all"])


async def iterations_of(task: asyncio.Task[Any], most: float = float("inf")) -> int:
    """Let the loop run until *task* is done, or *most* iterations. Returns: how many there were."""
    count = 0
    while not task.done() and count < most:
        await asyncio.sleep(0)
        count += 1
    return count


async def is_lost(task: asyncio.Task[Any]) -> bool:
    """Cancel *task*. Returns: whether it goes on, or ends as if it had not been cancelled."""
    if not task.cancel():
        return False
    await iterations_of(task, 100)
    lost = not task.cancelled()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    return lost


def nothing(*_: object) -> None:
    pass


async def opened(engine: Engine) -> None:
    """Connect, and disconnect."""
    (await engine.open([CHANNEL], nothing, nothing)).abort()


async def send_forever(link: Link) -> None:
    while True:
        await link.send(["*"])


async def lost_while_sending(server: Server, random: Random, times: int) -> int:
    lost = 0
    for _ in range(times):
        # A new engine each time: an old one refuses to open while the server still runs a statement of its last link.
        link = await engine_on(server.url()).open([CHANNEL], nothing, nothing)
        task = asyncio.create_task(send_forever(link))
        await iterations_of(task, random.randrange(60))
        lost += await is_lost(task)
        link.abort()
    return lost


@each_share
async def test_open_cancelled_at_random_loses_no_cancellation(server: Server, share: int) -> None:
    random, engine = Random(1), engine_on(server.url())
    most = await iterations_of(asyncio.create_task(opened(engine)))
    for _ in range(TIMES[server.kind] // share):
        task = asyncio.create_task(opened(engine))
        await iterations_of(task, random.randrange(most))
        assert not await is_lost(task)
    await no_connections(server)


@each_share
async def test_send_cancelled_at_random_loses_no_cancellation(server: Server, share: int) -> None:
    tasks = asyncio.all_tasks()
    assert await lost_while_sending(server, Random(2), TIMES[server.kind] // share) == 0
    await no_connections(server)
    await until(lambda: asyncio.all_tasks() == tasks)


async def live_and_end(server: Server, random: Random, most: int) -> None:
    """Start, use and close a bus. At a random await, cancel one of these calls, or close the bus."""
    bus = bus_on(server.url(), [])
    starting = asyncio.create_task(bus.start())
    if random.random() < 0.3:
        await iterations_of(starting, random.randrange(most))
        assert not await is_lost(starting)
    else:
        await starting
        bus.publish("key")
        flushing = asyncio.create_task(bus.flush())
        await iterations_of(flushing, random.randrange(60))
        if random.random() < 0.5:
            assert not await is_lost(flushing)
        closing = asyncio.create_task(bus.aclose())
        await iterations_of(closing, random.randrange(60))
        if random.random() < 0.5:
            closing.cancel()  # it may have nothing left to wait for
        await asyncio.gather(flushing, closing, return_exceptions=True)
    await bus.aclose()
    with pytest.raises(BusClosedError):
        bus.publish("key")


@each_share
async def test_bus_cancelled_or_closed_at_random_leaves_nothing(server: Server, share: int) -> None:
    random, tasks = Random(3), asyncio.all_tasks()
    bus = bus_on(server.url(), [])
    most = await iterations_of(asyncio.create_task(bus.start()))
    await bus.aclose()
    for _ in range(TIMES[server.kind] // share):
        await live_and_end(server, random, most)
    await until(lambda: asyncio.all_tasks() == tasks)
    await no_connections(server)
