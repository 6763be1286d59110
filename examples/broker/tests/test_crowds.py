"""Thousands of consumers that wait cost the broker next to nothing, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from .asks import batch, create, fetch_values, produce, values_in
from .served import Served, wait_until
from .wires import Wire, encoded, framed

pytestmark = pytest.mark.slow

CROWD = 2_000
#: Seconds for which it is watched.
WATCHED = 5.0


@pytest.fixture
async def parked(own_served: Served) -> AsyncIterator[list[Wire]]:
    """Consumers, each with a fetch that waits for records of the topic `idle`."""
    wires: list[Wire] = []
    async with await Wire.open(own_served.port) as helper:
        await create(helper, "idle")
        await helper.call("metadata", topics=None)
    frame = framed(encoded("fetch", fetch_values("idle", 0, wait=120.0)))
    for _ in range(CROWD):
        wires.append(await Wire.open(own_served.port))
        wires[-1].writer.write(frame)
    await asyncio.to_thread(wait_until, lambda: own_served.pending("fetch") == CROWD + 2, "all wait")
    yield wires
    for wire in wires:
        await wire.close()


async def test_crowd_that_waits_takes_no_time(own_served: Served, parked: list[Wire]) -> None:
    wakeups, cpu, begin = own_served.metric("wakeups_total", "fetch"), own_served.cpu(), time.monotonic()
    await asyncio.sleep(WATCHED)
    share = (own_served.cpu() - cpu) / (time.monotonic() - begin)
    assert share < 0.05
    # Deadlines are minutes away: the wake-ups are for the followers' own, and for coarse buckets on the way.
    assert own_served.metric("wakeups_total", "fetch") - wakeups <= 20 * WATCHED
    assert own_served.pending("fetch") == CROWD + 2


async def test_crowd_is_answered_by_one_append(own_served: Served, parked: list[Wire]) -> None:
    async with await Wire.open(own_served.port) as helper:
        await produce(helper, "idle", batch(b"x"))
    async with asyncio.timeout(30):
        for wire in parked:
            size = int.from_bytes(await wire.reader.readexactly(4))
            assert values_in((await wire.reader.readexactly(size))[-len(batch(b"x")) :]) == [b"x"]


async def test_crowd_that_leaves_leaves_nothing(own_served: Served, parked: list[Wire]) -> None:
    sockets = own_served.sockets()
    for wire in parked:
        wire.writer.transport.abort()
    await asyncio.to_thread(wait_until, lambda: own_served.pending("fetch") == 2, "only the followers wait")
    await asyncio.to_thread(wait_until, lambda: own_served.sockets() <= sockets - CROWD, "all are closed")
    assert own_served.stop() == (0, "")
