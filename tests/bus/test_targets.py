"""Purgatories as targets of a bus."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import MemoryBus, MemoryServer


class Wait(DelayedOperation[None]):
    ready = False

    def try_complete(self) -> bool:
        return Wait.ready and self.force_complete()


async def iterations_to_end_all(turn_budget: float) -> int:
    """Return the loop iterations in which 100,000 waiters end after a gap."""
    server = MemoryServer()
    async with (
        Purgatory(turn_budget=turn_budget) as purgatory,
        MemoryBus(server, [purgatory], heartbeat=60.0, timeout=60.0) as bus,
    ):
        Wait.ready = False
        for number in range(100_000):
            purgatory.watch(Wait(600.0), [number])
        Wait.ready = True
        gap = asyncio.create_task(bus.gap())
        ended: set[int] = set()
        while purgatory.num_delayed or not gap.done():
            await asyncio.sleep(0)
            ended.add(purgatory.statistics().completed)
        assert purgatory.statistics().completed == 100_000
        return len(ended)


@pytest.mark.slow
async def test_gap_with_many_waiters_is_sliced() -> None:
    """Other tasks run in between. The control has a budget that is never used up."""
    assert await iterations_to_end_all(0.001) > 20
    assert await iterations_to_end_all(1000.0) <= 3
