"""Waits for an offset that end otherwise, or in the middle of something: none is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.operations import Thresholds
from aiopurgatory.testing import ManualClock

from .helpers import AtFirstEnd, LeadershipError, check_waiting


@pytest.mark.parametrize(
    "end",
    [
        lambda op, _: op.cancel(),
        lambda op, _: op.fail(LeadershipError()),
        lambda op, _: op.force_complete(),
        lambda _, purgatory: purgatory.expire_all(),
        lambda _, purgatory: purgatory.cancel_for_key(("offset", "log", 5)),
        lambda _, purgatory: purgatory.fail_for_key(("offset", "log", 5), LeadershipError()),
        lambda _, purgatory: purgatory.close(),
    ],
)
async def test_waiter_ended_otherwise_leaves(log: Thresholds, end: Callable[[Any, Purgatory], Any]) -> None:
    """Nothing waits for offset 5 any more, so that another thread may advance to it."""
    op = log.reached(5, timeout=None)
    end(op, log.purgatory)
    assert (op.done(), len(log)) == (True, 0)
    op.exception() if not op.cancelled() else None
    assert await asyncio.to_thread(log.advance, 5) == 0
    assert log.value == 5
    check_waiting(log)


async def test_waiters_that_expire_leave_nothing(log: Thresholds, clock: ManualClock) -> None:
    """A watermark that stands still while producers come, wait and give up: KAFKA-664."""
    stays = log.reached(10**9, timeout=None)
    sizes = []
    tracemalloc.start()
    for batch in range(40):
        ops = [log.reached(batch * 100 + offset + 1, timeout=1.0) for offset in range(100)]
        await clock.advance(1.0)
        assert all(op.expired for op in ops)
        assert [isinstance(op.exception(), TimeoutError) for op in ops] == [True] * 100
        check_waiting(log)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] - sizes[10] < 20_000  # 30 batches; each offset kept would be 60 bytes or more
    assert len(log) == 1
    log.advance(10**9)
    assert stays.done()


# no time to wait


@pytest.mark.parametrize("timeout", [0, 0.0, -0.001, -1, float("-inf")])
async def test_reached_without_time_tries_once(log: Thresholds, timeout: float) -> None:
    log.advance(4)
    assert await log.reached(4, timeout=timeout) == 4
    with pytest.raises(TimeoutError, match="'log' had not reached offset 5"):
        await log.reached(5, timeout=timeout)
    op = log.reached(5, timeout=timeout)
    assert (op.outcome, len(log), log.purgatory.num_delayed) == (Outcome.EXPIRED, 0, 0)
    assert isinstance(op.exception(), TimeoutError)
    statistics = log.purgatory.statistics()
    assert (statistics.wakeups, statistics.expired, statistics.failed) == (0, 2, 0)


# other threads


@pytest.mark.parametrize("end", ["advance", "fail"])
async def test_call_from_another_thread_is_refused_and_loses_nothing(
    log: Thresholds, clock: ManualClock, end: str
) -> None:
    op = log.reached(5, timeout=None)
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(getattr(log, end), LeadershipError() if end == "fail" else 5)
    assert (log.value, log.error_for(5), op.done()) == (0, None, False)
    log.purgatory.check_and_complete(("offset", "log", 5))
    assert log.advance(5) == 1


async def test_fail_ends_waits_now_and_later(log: Thresholds) -> None:
    waits = [log.reached(offset, timeout=None) for offset in (3, 1, 2)]
    order: list[int] = []
    for number, wait in enumerate(waits):
        wait.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
    error = LeadershipError("moved to broker 2")
    assert log.fail(error) == 3
    log.fail(ValueError("too late"))
    later = log.reached(0, timeout=None)
    found = await asyncio.gather(*waits, later, return_exceptions=True)
    await asyncio.sleep(0)  # 3.14's gather() does not wait for the callbacks of what has ended
    assert order == [1, 2, 0]  # lowest offset first
    assert found == [error] * 4
    check_waiting(log)


async def test_fail_raises_the_same_traceback_each_time(log: Thresholds) -> None:
    """It is one error for all: raised a thousand times, it must not drag a thousand frames along."""
    log.fail(LeadershipError("moved to broker 2"))
    lengths = set()
    for _ in range(5):
        with pytest.raises(LeadershipError) as found:
            await log.reached(1, timeout=None)
        lengths.add(len(traceback.extract_tb(found.value.__traceback__)))
    assert len(lengths) == 1


async def test_advance_from_a_hook_neither_recurses_nor_loses(clock: ManualClock) -> None:
    count = 10_000
    nested: list[int] = []
    at_end = AtFirstEnd()

    def advance() -> None:
        at_end.do = advance
        nested.append(log.advance(log.value + 1))

    async with Purgatory(clock=clock, observers=[at_end]) as purgatory:
        log = Thresholds(purgatory, "log")
        at_end.do = advance
        ops = [log.reached(offset, timeout=None) for offset in range(1, count + 1)]
        assert log.advance(1) == 1
        assert all(op.done() for op in ops)
        assert (log.value, set(nested)) == (count + 1, {0})
        check_waiting(log)


class Interrupting(DelayedOperation[None]):
    """Its hook lets a CancelledError out, as soon as it may."""

    __slots__ = ("may_end",)

    def __init__(self) -> None:
        super().__init__(None)
        self.may_end = False

    def try_complete(self) -> bool:
        return self.may_end and self.force_complete()

    def on_complete(self) -> None:
        raise asyncio.CancelledError


@pytest.mark.parametrize("end", ["advance", "fail"])
async def test_hook_raising_base_exception_loses_no_wait(log: Thresholds, clock: ManualClock, end: str) -> None:
    interrupting = log.purgatory.watch(Interrupting(), [("offset", "log", 1)])
    ops = [log.reached(offset, timeout=None) for offset in (1, 2, 3, 9)]
    interrupting.may_end = True
    with pytest.raises(asyncio.CancelledError):
        getattr(log, end)(LeadershipError() if end == "fail" else 3)
    with pytest.raises(asyncio.CancelledError):
        interrupting.result()
    await clock.advance(0.0)
    assert [op.done() for op in ops] == [True, True, True, end != "advance"]
    for op in ops:
        op.exception() if op.done() else None
    check_waiting(log)
