"""Deadlines: never early, not late, data before timeouts (I1, I2, I10, I12), and reschedule()."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Interrupt, Op, raising, turns

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


async def test_on_expiration_base_exception_fails_and_passes(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(1.0, on_expiration=raising(Interrupt())), ["key"])
    with pytest.raises(Interrupt):
        purgatory.expire_all()
    check_invariants(purgatory)
    assert op.outcome is Outcome.FAILED
    assert isinstance(op.exception(), Interrupt)


async def test_reschedule_foreign_op_raises_value_error(purgatory: Purgatory, clock: ManualClock) -> None:
    async with Purgatory(clock=clock) as other:
        foreign = other.watch(Op(1.0), ["key"])
        for op in (Op(1.0), foreign):
            with pytest.raises(ValueError, match="watched"):
                purgatory.reschedule(op, 5.0)
        await clock.advance(1.0)
        assert foreign.expired


@pytest.mark.parametrize("how", ["clock", "expire_all"])
async def test_expire_all_in_a_last_try_asks_once(purgatory: Purgatory, clock: ManualClock, how: str) -> None:
    op = purgatory.watch(Op(1.0, try_complete=lambda op: op.tries > 2 and purgatory.expire_all()), ["key"])
    other = purgatory.watch(Op(60.0), ["key"])
    await clock.advance(1.0) if how == "clock" else purgatory.expire_all()
    check_invariants(purgatory)
    assert (op.tries, op.ran) == (3, ["on_complete", "on_expiration"])
    assert (other.tries, other.ran) == (3, ["on_complete", "on_expiration"])
