"""The testing kit itself: time stands still until told otherwise, and check_invariants() sees every kind of damage."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.core.core import CLOSED
from aiopurgatory.core.entry_points import core_of
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Op


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


def shift(thing: Any, name: str, by: int) -> None:
    setattr(thing, name, getattr(thing, name) + by)


#: Faults, and the invariant that each breaks. They get the core, its timer, its watchers, and an operation.
DAMAGES: dict[str, tuple[Callable[[Any, Any, Any, Any], object], str]] = {
    "taken from the timer": (lambda core, timer, watchers, op: timer.cancel(op), "I6"),
    "torn ring": (lambda core, timer, watchers, op: setattr(op._ring_next, "_ring_prev", op._ring_next), "I6"),
    "moved deadline": (lambda core, timer, watchers, op: shift(op, "_ring_deadline", 50_000_000), "I1"),
    "entries miscounted": (lambda core, timer, watchers, op: shift(watchers, "_entered", 1), "I6"),
    "timer miscounted": (lambda core, timer, watchers, op: shift(timer, "_count", -1), "I5"),
    "not parked": (lambda core, timer, watchers, op: setattr(op, "_op_watched_at", -math.inf), "I5"),
    "empty queue": (lambda core, timer, watchers, op: timer.queue.heap.clear(), "I3"),
    "wheel turned back": (
        lambda core, timer, watchers, op: shift(timer.wheels[0], "reach", -timer.wheels[0].interval),
        "I9",
    ),
    "handle lost": (lambda core, timer, watchers, op: setattr(core.alarm, "_handle", None), "I4"),
    "sleeps too long": (lambda core, timer, watchers, op: shift(core.alarm, "until", 10**12), "I4"),
    "half closed": (lambda core, timer, watchers, op: setattr(core, "state", CLOSED), "I13"),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_check_invariants_names_what_is_broken(clock: ManualClock, name: str) -> None:
    damage, invariant = DAMAGES[name]
    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    await clock.advance(0)
    op = purgatory.watch(Op(0.010), ["a", "b"])
    purgatory.watch(Op(5.0), ["b"])
    check_invariants(purgatory)
    core: Any = core_of(purgatory)
    damage(core, core.deadlines.timer, core.watchers, op)
    with pytest.raises(AssertionError, match=f"^{invariant}: "):
        check_invariants(purgatory)


@pytest.mark.parametrize("by_reschedule", [False, True])
async def test_ten_advances_of_a_tenth_are_a_second(
    clock: ManualClock, purgatory: Purgatory, by_reschedule: bool
) -> None:
    await clock.advance(0.1)
    op = purgatory.watch(Op(None if by_reschedule else 0.9), ["key"])
    if by_reschedule:
        purgatory.reschedule(op, 0.9)
    for _ in range(9):
        assert not op.done()
        await clock.advance(0.1)
    assert (clock.time(), op.expired) == (1.0, True)
