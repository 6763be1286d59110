"""Waiters ordered by the offset they need: an advance touches those whom it satisfies, and nobody else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.operations import ThresholdWait, ThresholdWatchers
from aiopurgatory.operations.thresholds import SWEEP_SLACK
from aiopurgatory.testing import ManualClock, check_invariants


class LeadershipError(Exception):
    pass


@pytest.fixture
def log(purgatory: Purgatory) -> ThresholdWatchers:
    return ThresholdWatchers(purgatory, "log")


def check_lists(watchers: ThresholdWatchers) -> None:
    """What is inside agrees with itself, and holds nothing for nobody, but for some slack."""
    check_invariants(watchers.purgatory)
    waiting, heap = watchers._waiting, watchers._heap
    assert watchers.waiting == watchers.purgatory.num_delayed
    assert waiting.keys() <= set(heap)
    assert all(offset > watchers.value for offset in waiting)
    assert all(count > 0 for count in waiting.values())
    assert len(heap) <= 2 * len(waiting) + SWEEP_SLACK


async def test_advance_asks_only_whom_it_satisfies(log: ThresholdWatchers, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [log.watch(offset) for offset in range(1, 101)]
    asked: list[int] = []
    original = ThresholdWait.try_complete

    def try_complete(op: ThresholdWait) -> bool:
        asked.append(op.offset)
        return original(op)

    monkeypatch.setattr(ThresholdWait, "try_complete", try_complete)
    assert log.advance(3) == 3
    assert asked == [1, 2, 3]
    assert [op.done() for op in ops] == [True] * 3 + [False] * 97
    check_lists(log)


async def test_advance_ends_lowest_first_then_oldest(log: ThresholdWatchers) -> None:
    ended: list[str] = []

    async def wait(name: str, offset: int) -> None:
        await log.reached(offset)
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for name, offset in [("c", 9), ("a", 4), ("d", 9), ("b", 4), ("e", 10)]:
            group.create_task(wait(name, offset))
        await asyncio.sleep(0)
        assert log.advance(3) == 0
        assert log.advance(20) == 5
    assert ended == ["a", "b", "c", "d", "e"]


async def test_reached_already_does_not_park(log: ThresholdWatchers, purgatory: Purgatory) -> None:
    log.advance(7)
    assert await log.reached(7) == 7
    assert await log.reached(-1) == 7
    assert (purgatory.statistics().completed, log.waiting) == (2, 0)


async def test_reached_returns_the_value_it_found(log: ThresholdWatchers) -> None:
    wait = asyncio.create_task(log.reached(5))
    await asyncio.sleep(0)
    log.advance(8)
    log.advance(11)
    assert await wait in (8, 11)
    assert log.watch(5).result() == 11


async def test_reached_at_deadline_raises_timeout_error(log: ThresholdWatchers, clock: ManualClock) -> None:
    log.advance(4)
    wait = asyncio.create_task(log.reached(5, timeout=1.0))
    await clock.advance(0.999)
    assert not wait.done()
    await clock.advance(0.001)
    with pytest.raises(TimeoutError, match=r"'log' had not reached offset 5 after 1\.0 s"):
        await wait
    check_lists(log)


async def test_start_counts_as_reached(purgatory: Purgatory) -> None:
    log = ThresholdWatchers(purgatory, "log", start=10)
    assert log.watch(10).done()
    assert not log.watch(11).done()


async def test_advance_never_moves_back(log: ThresholdWatchers) -> None:
    log.advance(5)
    assert (log.advance(3), log.value) == (0, 5)
    assert log.watch(5).done()


async def test_advance_before_start_keeps_the_value(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock)
    log = ThresholdWatchers(purgatory, "log")
    assert log.advance(5) == 0
    with pytest.raises(RuntimeError, match="not started"):
        log.watch(9)
    async with purgatory:
        assert log.waiting == 0
        assert await log.reached(5) == 5


@pytest.mark.parametrize(
    "end",
    [
        lambda op: op.cancel(),
        lambda op: op.fail(LeadershipError()),
        lambda op: op.force_complete(),
        lambda op: op.watchers.purgatory.expire_all(),
        lambda op: op.watchers.purgatory.cancel_for_key(("offset", "log", 5)),
    ],
)
async def test_waiter_ended_otherwise_leaves(log: ThresholdWatchers, end: Callable[[ThresholdWait], Any]) -> None:
    op = log.watch(5)
    end(op)
    assert (op.done(), log.waiting) == (True, 0)
    op.exception() if not op.cancelled() else None
    assert log.advance(5) == 0
    check_lists(log)


async def test_waiters_of_one_offset_leave_one_by_one(log: ThresholdWatchers) -> None:
    ops = [log.watch(5) for _ in range(3)]
    ops[1].cancel()
    assert log.waiting == 2
    assert log.advance(5) == 2
    assert (ops[0].outcome, ops[2].outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)


async def test_waiters_that_expire_leave_nothing(log: ThresholdWatchers, clock: ManualClock) -> None:
    """A watermark that stands still while producers come, wait and give up: KAFKA-664."""
    stays = log.watch(10**9)
    for batch in range(20):
        ops = [log.watch(batch * 100 + offset + 1, timeout=1.0) for offset in range(100)]
        await clock.advance(1.0)
        assert all(op.expired for op in ops)
        assert [isinstance(op.exception(), TimeoutError) for op in ops] == [True] * 100
        check_lists(log)
    assert log.waiting == 1
    log.advance(10**9)
    assert stays.done()


async def test_awaiting_task_cancelled_leaves(log: ThresholdWatchers) -> None:
    wait = asyncio.create_task(log.reached(5, timeout=30.0))
    await asyncio.sleep(0)
    wait.cancel()
    assert (log.waiting, log.purgatory.num_delayed) == (0, 0)
    with pytest.raises(asyncio.CancelledError):
        await wait


async def test_fail_ends_everybody_now_and_later(log: ThresholdWatchers) -> None:
    waits = [asyncio.create_task(log.reached(offset)) for offset in (3, 1, 2)]
    await asyncio.sleep(0)
    error = LeadershipError("moved to broker 2")
    assert log.fail(error) == 3
    log.fail(ValueError("too late"))
    later = asyncio.create_task(log.reached(0))
    order: list[int] = []
    for number, wait in enumerate(waits):
        wait.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
    found = await asyncio.gather(*waits, later, return_exceptions=True)
    assert order == [1, 2, 0]  # lowest offset first
    assert [type(exc) for exc in found] == [LeadershipError] * 4
    assert {str(exc) for exc in found} == {"moved to broker 2"}
    assert len({id(exc) for exc in found} | {id(error)}) == 5  # each has its own traceback
    assert error.__traceback__ is None
    check_lists(log)


class StrangeError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__("strange")
        self.code = code


async def test_fail_with_error_that_cannot_be_copied(log: ThresholdWatchers) -> None:
    wait = asyncio.create_task(log.reached(1))
    await asyncio.sleep(0)
    log.fail(StrangeError(code=7))
    with pytest.raises(StrangeError) as found:
        await wait
    assert found.value.code == 7


@pytest.mark.parametrize("exc", ["lost", LeadershipError, StopIteration(), KeyboardInterrupt(), None])
async def test_fail_without_exception_is_refused(log: ThresholdWatchers, exc: Any) -> None:
    op = log.watch(1)
    with pytest.raises(TypeError, match="exc must be an instance of Exception"):
        log.fail(exc)
    assert not op.done()
    log.advance(1)
    assert op.result() == 1


@pytest.mark.parametrize("offset", [1.5, float("nan"), "7", None])
async def test_offset_that_is_no_int_is_refused(log: ThresholdWatchers, offset: Any) -> None:
    with pytest.raises(TypeError, match="offset must be an int"):
        log.watch(offset)
    with pytest.raises(TypeError, match="value must be an int"):
        log.advance(offset)
    with pytest.raises(TypeError, match="start must be an int"):
        ThresholdWatchers(log.purgatory, "log", start=offset)
    assert (log.value, log.waiting) == (0, 0)


async def test_key_unhashable_is_refused(purgatory: Purgatory) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        ThresholdWatchers(purgatory, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
async def test_watch_with_bad_timeout_leaves_nothing(log: ThresholdWatchers, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be >= 0 s"):
        log.watch(5, timeout)
    assert log.waiting == 0


async def test_watch_refused_leaves_nothing(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        log = ThresholdWatchers(purgatory, "log")
        first = log.watch(5)
        with pytest.raises(PurgatoryFullError):
            log.watch(5)
        assert log.waiting == 1
        check_lists(log)
        log.advance(5)
        assert first.done()


async def test_purgatory_closed_answers_everybody(purgatory: Purgatory, log: ThresholdWatchers) -> None:
    wait = asyncio.create_task(log.reached(5))
    await asyncio.sleep(0)
    purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await wait
    with pytest.raises(PurgatoryClosedError):
        await log.reached(5)
    assert log.advance(5) == 0
    assert log.waiting == 0


async def test_two_partitions_of_one_purgatory_are_apart(purgatory: Purgatory) -> None:
    one, other = ThresholdWatchers(purgatory, ("orders", 0)), ThresholdWatchers(purgatory, ("orders", 1))
    ops = [one.watch(5), other.watch(5)]
    assert one.advance(5) == 1
    assert [op.done() for op in ops] == [True, False]
    assert other.fail(LeadershipError()) == 1
    ops[1].exception()


class Chain(ThresholdWait):
    """Its end is the next advance."""

    def on_complete(self) -> int:
        found = super().on_complete()
        assert self.watchers.advance(found + 1) == 0  # put off
        return found


async def test_advance_from_a_hook_neither_recurses_nor_loses(log: ThresholdWatchers) -> None:
    count = 10_000
    ops = [Chain(log, offset, None) for offset in range(1, count + 1)]
    for op in ops:
        log._enter(op.offset)
        log.purgatory.watch(op, [("offset", "log", op.offset)])
    log.advance(1)
    assert all(op.done() for op in ops)
    assert log.value == count + 1
    check_lists(log)


class Interrupting(ThresholdWait):
    def on_complete(self) -> int:
        super().on_complete()
        raise asyncio.CancelledError


async def test_hook_raising_base_exception_cuts_nobody_off(log: ThresholdWatchers, clock: ManualClock) -> None:
    interrupting = Interrupting(log, 1, None)
    log._enter(1)
    log.purgatory.watch(interrupting, [("offset", "log", 1)])
    others = [log.watch(offset) for offset in (2, 3, 9)]
    with pytest.raises(asyncio.CancelledError):
        log.advance(3)
    with pytest.raises(asyncio.CancelledError):
        interrupting.result()
    await clock.advance(0.0)
    assert [op.done() for op in others] == [True, True, False]
    check_lists(log)


class FailingLoudly(ThresholdWait):
    def fail(self, exc: Exception) -> bool:
        super().fail(exc)
        raise asyncio.CancelledError


async def test_fail_with_hook_raising_base_exception_ends_all(log: ThresholdWatchers, clock: ManualClock) -> None:
    loud = FailingLoudly(log, 1, None)
    log._enter(1)
    log.purgatory.watch(loud, [("offset", "log", 1)])
    others = [log.watch(offset) for offset in (2, 3)]
    with pytest.raises(asyncio.CancelledError):
        log.fail(LeadershipError())
    await clock.advance(0.0)
    assert [type(op.exception()) for op in (loud, *others)] == [LeadershipError] * 3
    check_lists(log)


async def test_repr_shows_counts(log: ThresholdWatchers) -> None:
    log.advance(3)
    log.watch(4)
    assert repr(log) == "<ThresholdWatchers 'log' value=3 waiting=1>"


@pytest.mark.parametrize("seed", range(3))
async def test_random_steps_agree_with_a_list(log: ThresholdWatchers, clock: ManualClock, seed: int) -> None:
    random_ = random.Random(seed)
    waiting: list[ThresholdWait] = []
    for _ in range(500):
        step = random_.choices(["watch", "advance", "cancel", "time"], [60, 8, 30, 2])[0]
        if step == "watch":
            op = log.watch(log.value + random_.randint(-2, 60), random_.choice([None, 1.0, 5.0]))
            assert op.done() == (op.offset <= log.value)
            waiting += [] if op.done() else [op]
        elif step == "advance":
            value = log.value + random_.randint(-3, 10)
            assert log.advance(value) == sum(op.offset <= value for op in waiting)
        elif step == "cancel" and waiting:
            random_.choice(waiting).cancel()
        elif step == "time":
            await clock.advance(1.0)
        for op in waiting:
            if op.done() and not op.cancelled():
                op.exception()
        waiting = [op for op in waiting if not op.done()]
        assert all(op.offset > log.value for op in waiting)
        assert log.waiting == len(waiting)
        check_lists(log)
