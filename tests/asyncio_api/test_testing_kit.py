"""The testing kit itself: time stands still until told otherwise, and check_invariants() sees every kind of damage."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.core.core import CLOSED
from aiopurgatory.core.entry_points import core_of
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import Waiting


@pytest.mark.parametrize("seconds", [-1.0, -1e-9, math.nan])
async def test_advance_negative_or_nan_is_refused(clock: ManualClock, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        await clock.advance(seconds)
    assert clock.time() == 0.0


async def test_advance_stops_at_every_instant_in_order(clock: ManualClock) -> None:
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.time()))

    for name, when in (("late", 3.0), ("early", 1.0), ("early too", 1.0), ("never", 9.0)):
        clock.call_at(when, partial(note, name))
    await clock.advance(3.0)
    assert seen == [("early", 1.0), ("early too", 1.0), ("late", 3.0)]


async def test_advance_runs_what_callbacks_arm(clock: ManualClock) -> None:
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.time())
        clock.call_at(clock.time() + 1.0, again)

    clock.call_at(1.0, again)
    await clock.advance(4.5)
    assert seen == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("when", [-5.0, 0.0])
async def test_call_at_past_runs_on_a_later_turn(clock: ManualClock, when: float) -> None:
    seen: list[float] = []
    clock.call_at(when, lambda: seen.append(clock.time()))
    assert seen == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [0.0]


async def test_call_at_cancelled_never_runs(clock: ManualClock) -> None:
    seen: list[str] = []
    first, _ = (clock.call_at(1.0, partial(seen.append, name)) for name in ("first", "second"))
    past = clock.call_at(0.0, partial(seen.append, "past"))
    first.cancel()
    past.cancel()
    past.cancel()
    await clock.advance(2.0)
    assert seen == ["second"]


async def test_advance_reads_the_instant_of_each_expiry(purgatory: Purgatory, clock: ManualClock) -> None:
    seen: list[float] = []

    class Looking(DelayedOperation[None]):
        def try_complete(self) -> bool:
            return False

        def on_complete(self) -> None:
            seen.append(clock.time())
            if len(seen) < 4:  # and operations watched on the way are due on the way
                purgatory.watch(Looking(1.0), ["key"])

    purgatory.watch(Looking(0.5), ["key"])
    await clock.advance(10.0)
    assert seen == [0.5, 1.5, 2.5, 3.5]


async def test_advance_returns_when_all_due_has_run(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        tasks = [asyncio.create_task(answer(purgatory)) for _ in range(100)]
        await clock.advance(0)
        await clock.advance(1.0)
        assert [task.done() and task.result() for task in tasks] == ["late"] * 100


async def answer(purgatory: Purgatory) -> str:
    return await purgatory.watch(Waiting(1.0), ["key"])


async def test_advance_serves_many_purgatories(clock: ManualClock) -> None:
    async with Purgatory(clock=clock) as first, Purgatory(clock=clock) as second:
        ops = [first.watch(Waiting(1.0), ["key"]), second.watch(Waiting(2.0), ["key"])]
        await clock.advance(1.0)
        assert [op.expired for op in ops] == [True, False]
        await clock.advance(1.0)
        assert [op.expired for op in ops] == [True, True]


def take_from_timer(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer.cancel(op)


def take_from_timer_uncounted(purgatory: Any, op: Any) -> None:
    op._ring_prev._ring_next, op._ring_next._ring_prev = op._ring_next, op._ring_prev


def tear_the_ring(purgatory: Any, op: Any) -> None:
    op._ring_next._ring_prev = op._ring_next


def move_the_deadline(purgatory: Any, op: Any) -> None:
    op._ring_deadline += 50_000_000


def take_from_one_key(purgatory: Any, op: Any) -> None:
    core_of(purgatory).watchers.drop(op, "a")


def take_from_all_keys(purgatory: Any, op: Any) -> None:
    core_of(purgatory).watchers.remove(op, op.keys)


def leave_a_key_empty(purgatory: Any, op: Any) -> None:
    core_of(purgatory).watchers.by_key["empty"] = {}


def leave_an_ended_op_listed(purgatory: Any, op: Any) -> None:
    keys = op.keys
    op.cancel()
    core_of(purgatory).watchers.enter(op, keys)


def miscount_the_entries(purgatory: Any, op: Any) -> None:
    core_of(purgatory).watchers.entries += 1


def miscount_the_pending(purgatory: Any, op: Any) -> None:
    core_of(purgatory).watchers.pending += 1


def miscount_the_timer(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer._count -= 1


def miscount_a_bucket(purgatory: Any, op: Any) -> None:
    op._ring_bucket.count += 1


def count_in_another_bucket(purgatory: Any, op: Any) -> None:
    op._ring_bucket = next(
        bucket for bucket in core_of(purgatory).deadlines.timer.wheels[0].buckets if bucket is not op._ring_bucket
    )


def forget_that_it_is_parked(purgatory: Any, op: Any) -> None:
    op._op_watched_at = -math.inf


def forget_its_keys(purgatory: Any, op: Any) -> None:
    op._op_keys = ()


def forget_the_queue(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer._queue._heap.clear()


def queue_twice(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer._queue._heap *= 2


def change_a_queued_bucket(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer._queue._heap[0][2].expiration += 1


def turn_a_wheel_back(purgatory: Any, op: Any) -> None:
    core_of(purgatory).deadlines.timer.wheels[0].start -= core_of(purgatory).deadlines.timer.wheels[0].interval


def lose_the_handle(purgatory: Any, op: Any) -> None:
    core_of(purgatory).alarm._handle = None


def sleep_too_long(purgatory: Any, op: Any) -> None:
    core_of(purgatory).alarm.until += 10**12


def close_half(purgatory: Any, op: Any) -> None:
    core_of(purgatory).state = CLOSED


DAMAGES: list[tuple[Callable[[Any, Any], None], str]] = [
    (take_from_timer, "I6"),
    (take_from_timer_uncounted, "I5"),
    (tear_the_ring, "I6"),
    (move_the_deadline, "I1"),
    (take_from_one_key, "I6"),
    (take_from_all_keys, "I5"),
    (leave_a_key_empty, "I6"),
    (leave_an_ended_op_listed, "I6"),
    (miscount_the_entries, "I6"),
    (miscount_the_pending, "I5"),
    (miscount_the_timer, "I5"),
    (miscount_a_bucket, "I5"),
    (count_in_another_bucket, "I5"),
    (forget_that_it_is_parked, "I5"),
    (forget_its_keys, "I6"),
    (forget_the_queue, "I3"),
    (queue_twice, "I3"),
    (change_a_queued_bucket, "I3"),
    (turn_a_wheel_back, "I9"),
    (lose_the_handle, "I4"),
    (sleep_too_long, "I4"),
    (close_half, "I13"),
]


@pytest.mark.parametrize(("damage", "invariant"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
async def test_check_invariants_names_what_is_broken(
    damage: Callable[[Any, Any], None], invariant: str, clock: ManualClock
) -> None:
    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    await clock.advance(0)
    op = purgatory.watch(Waiting(0.010), ["a", "b"])
    purgatory.watch(Waiting(5.0), ["b"])
    check_invariants(purgatory)
    damage(purgatory, op)
    with pytest.raises(AssertionError, match=f"^{invariant}: "):
        check_invariants(purgatory)
