"""On the real clock of either loop: never early, and awake only when there is something to do."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import check_invariants

pytestmark = pytest.mark.slow


class Wait(DelayedOperation[None]):
    not_before = 0.0
    expired_at: float | None = None

    def try_complete(self) -> bool:
        return False

    def on_expiration(self) -> None:
        self.expired_at = time.monotonic()


def watch(purgatory: Purgatory, timeout: float) -> Wait:
    op = Wait(timeout)
    op.not_before = time.monotonic() + timeout
    return purgatory.watch(op, ["key"])


@pytest.mark.parametrize("tick", [0.0001, 0.001, 0.0025])
async def test_expiry_fractional_ms_is_never_early(tick: float) -> None:
    rng = random.Random(4)
    async with Purgatory(tick=tick) as purgatory:
        ops = []
        for _ in range(300):
            ops.append(watch(purgatory, rng.uniform(0.0003, 0.0159)))
            await asyncio.sleep(rng.uniform(0, 0.002))
        for op in ops:
            await op
        check_invariants(purgatory)
    assert [op for op in ops if op.expired_at is None or op.expired_at < op.not_before] == []


async def test_expiry_fractional_ms_does_not_spin() -> None:
    rng = random.Random(5)
    timeouts = [rng.uniform(0.0003, 0.0159) for _ in range(60)]
    async with Purgatory() as purgatory:
        for timeout in timeouts:
            await watch(purgatory, timeout)
        # The armed handle, and another one if the loop's own timer was early.
        assert purgatory.statistics().wakeups <= 2 * len(timeouts)


async def test_clock_with_nothing_due_never_wakes() -> None:
    # A timeout of 1600 s lies where the wheel's buckets are 160 s wide: none of them is touched for 23 minutes.
    async with Purgatory() as empty, Purgatory() as waiting, Purgatory() as cancelled, Purgatory() as emptied:
        watch(waiting, 1600.0)
        far, near = watch(cancelled, 1600.0), watch(emptied, 0.05)
        await asyncio.sleep(0.01)
        far.cancel()
        near.cancel()
        busy, began = time.process_time(), time.monotonic()
        await asyncio.sleep(1.0)
        busy, passed = time.process_time() - busy, time.monotonic() - began
        assert [p.statistics().wakeups for p in (empty, waiting, cancelled)] == [0, 0, 0]
        assert emptied.statistics().wakeups <= 1  # its handle was armed already
        assert busy < passed / 2
        for purgatory in (empty, waiting, cancelled, emptied):
            check_invariants(purgatory)
