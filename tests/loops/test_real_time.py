"""On the real clock of either loop: never early, awake only when there is something to do, data before time-outs."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import check_invariants

pytestmark = pytest.mark.slow


class Wait(DelayedOperation[str]):
    ready = False
    not_before = 0.0
    expired_at: float | None = None

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        return "time is up" if self.expired else "data"

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


async def test_expiry_data_came_while_loop_was_stalled_wins() -> None:
    async with Purgatory() as purgatory:
        ops = [watch(purgatory, 0.005 + n / 1000) for n in range(10)]
        await asyncio.sleep(0)
        time.sleep(0.03)  # noqa: ASYNC251  the stall: all deadlines pass
        for op in ops[::2]:
            op.ready = True
        assert [await op for op in ops] == ["data", "time is up"] * 5
        assert [op.outcome for op in ops] == [Outcome.COMPLETED, Outcome.EXPIRED] * 5
        check_invariants(purgatory)
