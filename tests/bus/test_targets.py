"""Purgatories as targets of a bus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import MemoryBus, MemoryServer

from .waits import Recorder, until


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


async def test_target_that_raises_costs_no_other_key(reported: list[dict[str, Any]]) -> None:
    """This holds for CancelledError, too: a check may end an operation with one."""

    class Fails(Recorder):
        def notify(self, key: object, limit: int | None = None) -> None:
            super().notify(key)
            if key == "bad":
                raise asyncio.CancelledError

    server, there = MemoryServer(), Fails()
    async with MemoryBus(server, []) as one, MemoryBus(server, [there]) as other:
        for key in ("x", "bad", "y"):
            one.publish(key)
        await until(lambda: "y" in there.keys)
        assert (there.keys, other.statistics().gaps) == (["x", "bad", "y"], 0)
    assert [type(context["exception"]) for context in reported] == [asyncio.CancelledError]
