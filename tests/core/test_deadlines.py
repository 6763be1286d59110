"""Deadlines: never early, not late, data before timeouts (I1, I2, I10, I12), and reschedule()."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Interrupt, Op, awaited, fate, raising, turns

seconds = st.floats(0, 1e6) | st.floats(0, 0.1) | st.integers(0, 100).map(lambda n: n / 1000)


def nanoseconds(seconds: float) -> Fraction:
    """*seconds* as the decimal of nine digits that it is nearest to, if that is the same float; else exactly."""
    whole = round(Fraction(seconds) * 10**9)
    return Fraction(whole) if whole / 10**9 == seconds else Fraction(seconds) * 10**9


@given(
    start=st.floats(-1e3, 2e9),
    tick=st.sampled_from([0.001, 0.01, 1.0]) | st.floats(1e-5, 100.0),
    steps=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=8),
)
@settings(deadline=None, max_examples=100)
async def test_expiry_never_early_and_within_a_tick(
    start: float, tick: float, steps: list[tuple[float, float]]
) -> None:
    clock = ManualClock(start)
    async with Purgatory(tick=tick, clock=clock) as purgatory:
        waiting: list[tuple[Op, Fraction, float]] = []
        early = 0

        def look(op: Op) -> None:
            nonlocal early
            early += any(op is other and nanoseconds(clock.time()) < due for other, due, _ in waiting)

        for timeout, pause in steps:
            due = nanoseconds(clock.time()) + nanoseconds(timeout)
            waiting.append((purgatory.watch(Op(timeout, on_complete=look), ["key"]), due, clock.time() + timeout))
            check_invariants(purgatory)
            await clock.advance(pause)
            check_invariants(purgatory)
            grain = 4 * math.ulp(clock.time())  # of the floats themselves
            for op, _, deadline in waiting:
                assert op.expired or clock.time() < deadline + tick + grain
        assert early == 0


@pytest.mark.parametrize("start", [0.0, 3.2e6, 2.0**36 / 1000, 2.0**40 / 1000, 1.8e9, 1e10])
async def test_expiry_at_any_uptime_comes_at_its_time(start: float) -> None:
    clock = ManualClock(start)
    async with Purgatory(clock=clock) as purgatory:
        await turns(1)  # the clock sleeps, with nothing to wake for
        op = purgatory.watch(Op(30.0), ["key"])
        check_invariants(purgatory)
        await clock.advance(29.99)
        assert op.outcome is None
        await clock.advance(0.02)
        assert op.expired


async def test_expiry_order_is_by_deadline_then_arrival(purgatory: Purgatory, clock: ManualClock) -> None:
    order: list[Op] = []
    timeouts = [3.0, 1.0, 0.5, 1.0, 70.0, 0.5, 3.0]
    ops = [purgatory.watch(Op(timeout, on_complete=order.append), ["key"]) for timeout in timeouts]
    await clock.advance(100.0)
    assert order == [ops[number] for number in (2, 5, 1, 3, 0, 6, 4)]


async def test_expiry_in_slices_of_the_turn_budget_keeps_order(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, turn_budget=1e-9) as purgatory:
        order: list[Op] = []
        ops = [purgatory.watch(Op(1.0, on_complete=order.append), ["key"]) for _ in range(20)]
        advancing = asyncio.create_task(clock.advance(1.0))
        done_by_turn = []
        while len(order) < 20:
            await turns(1)
            check_invariants(purgatory)
            done_by_turn.append(len(order))
        assert set(done_by_turn) == set(range(21))
        assert order == ops
        await advancing


async def test_on_expiration_raising_is_what_awaiters_get(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(1.0, on_expiration=raising(TimeoutError("late"))), ["key"])
    task = asyncio.create_task(fate(op))
    await clock.advance(1.0)
    assert (await task, op.outcome) == ("TimeoutError", Outcome.EXPIRED)
    assert isinstance(op.exception(), TimeoutError)
    assert (purgatory.statistics().expired, purgatory.statistics().failed) == (1, 0)


@pytest.mark.parametrize("awaiters", [0, 1, 2])
async def test_on_expiration_raising_is_never_reported(purgatory: Purgatory, clock: ManualClock, awaiters: int) -> None:
    op = purgatory.watch(Op(on_expiration=raising(TimeoutError("late"))), ["key"])
    tasks = [await awaited(op) for _ in range(awaiters)]
    purgatory.expire_all()
    for task in tasks:
        task.cancel()
    await clock.advance(1.0)  # the fixture "reports" is empty
    assert op.outcome is Outcome.EXPIRED


async def test_on_expiration_base_exception_fails_and_passes(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(1.0, on_expiration=raising(Interrupt())), ["key"])
    with pytest.raises(Interrupt):
        purgatory.expire_all()
    check_invariants(purgatory)
    assert op.outcome is Outcome.FAILED
    assert isinstance(op.exception(), Interrupt)


@pytest.mark.parametrize(("timeout", "at"), [(0.5, 0.9), (5.0, 5.4), (0.0, 0.401)])
async def test_reschedule_counts_from_now(purgatory: Purgatory, clock: ManualClock, timeout: float, at: float) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    await clock.advance(0.4)
    assert purgatory.reschedule(op, timeout) is True
    check_invariants(purgatory)
    assert op.timeout == timeout
    await clock.advance(at - 0.4 - 0.001)
    assert op.outcome is None
    await clock.advance(0.0011)
    assert op.expired


async def test_reschedule_to_none_and_back(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    assert purgatory.reschedule(op, None) is True
    await clock.advance(1e6)
    assert (op.outcome, op.timeout) == (None, None)
    assert purgatory.reschedule(op, 2.0) is True
    await clock.advance(2.0)
    assert op.expired


async def test_reschedule_in_its_last_try_puts_expiry_off(purgatory: Purgatory, clock: ManualClock) -> None:
    def more_time(op: Op) -> None:
        if op.tries == 3:
            assert purgatory.reschedule(op, 5.0)
            check_invariants(purgatory)

    op = purgatory.watch(Op(1.0, try_complete=more_time), ["key"])
    await clock.advance(5.999)
    assert (op.outcome, op.tries) == (None, 3)
    await clock.advance(0.001)
    assert (op.outcome, op.tries) == (Outcome.EXPIRED, 4)


@pytest.mark.parametrize("tries", [1, 2])
async def test_reschedule_while_it_is_watched(purgatory: Purgatory, clock: ManualClock, tries: int) -> None:
    op = Op(1.0, try_complete=lambda op: op.tries == tries and purgatory.reschedule(op, 3.0))
    purgatory.watch(op, ["key"])
    await clock.advance(2.999)
    assert op.outcome is None
    await clock.advance(0.001)
    assert op.expired


@pytest.mark.parametrize("name", ENDINGS)
async def test_reschedule_after_the_end_is_false(purgatory: Purgatory, name: str) -> None:
    op = purgatory.watch(Op(1.0, on_complete=lambda op: inside.append(purgatory.reschedule(op, 1.0))), ["key"])
    inside: list[bool] = []
    task = await awaited(op)
    ENDINGS[name].end(purgatory, op)
    assert purgatory.reschedule(op, 1.0) is False
    assert inside in ([], [False])
    check_invariants(purgatory)
    await task


async def test_reschedule_foreign_op_raises_value_error(purgatory: Purgatory, clock: ManualClock) -> None:
    async with Purgatory(clock=clock) as other:
        foreign = other.watch(Op(1.0), ["key"])
        for op in (Op(1.0), foreign):
            with pytest.raises(ValueError, match="watched"):
                purgatory.reschedule(op, 5.0)
        await clock.advance(1.0)
        assert foreign.expired


@pytest.mark.parametrize(("timeout", "error"), [(math.nan, ValueError), ("1", TypeError)])
async def test_reschedule_bad_timeout_changes_nothing(
    purgatory: Purgatory, clock: ManualClock, timeout: Any, error: type[Exception]
) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    with pytest.raises(error, match="timeout"):
        purgatory.reschedule(op, timeout)
    assert op.timeout == 1.0
    await clock.advance(1.0)
    assert op.expired


async def test_expire_all_asks_once_more_and_counts(purgatory: Purgatory, clock: ManualClock) -> None:
    ops = [purgatory.watch(Op(timeout), ["a", "b"]) for timeout in (None, 60.0, 0)]
    ops[1].ready = True
    assert purgatory.expire_all() == 3
    check_invariants(purgatory)
    assert [op.outcome for op in ops] == [Outcome.EXPIRED, Outcome.COMPLETED, Outcome.EXPIRED]
    assert purgatory.expire_all() == 0
    await clock.advance(100.0)
    assert [op.tries for op in ops] == [3, 3, 3]


async def test_expire_all_put_off_is_not_counted(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(60.0, try_complete=lambda op: op.tries == 3 and purgatory.reschedule(op, 5.0)), ["key"])
    assert purgatory.expire_all() == 0
    check_invariants(purgatory)
    assert op.outcome is None
    await clock.advance(5.0)
    assert op.expired


@pytest.mark.parametrize("how", ["clock", "expire_all"])
async def test_expire_all_in_a_last_try_asks_once(purgatory: Purgatory, clock: ManualClock, how: str) -> None:
    op = purgatory.watch(Op(1.0, try_complete=lambda op: op.tries > 2 and purgatory.expire_all()), ["key"])
    other = purgatory.watch(Op(60.0), ["key"])
    await clock.advance(1.0) if how == "clock" else purgatory.expire_all()
    check_invariants(purgatory)
    assert (op.tries, op.ran) == (3, ["on_complete", "on_expiration"])
    assert (other.tries, other.ran) == (3, ["on_complete", "on_expiration"])


async def test_expire_all_spares_those_watched_meanwhile(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0, on_complete=lambda _: purgatory.watch(later, ["key"])), ["key"])
    later = Op(60.0)
    assert purgatory.expire_all() == 1
    assert (op.outcome, later.outcome) == (Outcome.EXPIRED, None)
