"""Many at once: in linear time, and in no more memory."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import check_invariants


class Never(DelayedOperation[None]):
    def try_complete(self) -> bool:
        return False


@pytest.mark.usefixtures("without_gc")  # its full passes over that many tasks are a cost of their own
async def test_cancel_waiters_of_one_key_takes_linear_time(purgatory: Purgatory) -> None:
    async def wait() -> None:
        await purgatory.watch(Never(30.0), ["hot"])

    async def cancel_all(count: int) -> float:
        tasks = [asyncio.create_task(wait()) for _ in range(count)]
        await asyncio.sleep(0)
        assert purgatory.num_delayed == count
        rng.shuffle(tasks)
        began = time.process_time()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return time.process_time() - began

    rng = random.Random(7)
    few = min([await cancel_all(10_000) for _ in range(2)])
    many = await cancel_all(40_000)
    assert many < 12 * few  # 4 is linear, 16 is quadratic
    assert (purgatory.watched_entries, purgatory.statistics().keys) == (0, 0)
    check_invariants(purgatory)
