"""The clock task sleeps until the earliest non-empty bucket. If nothing is pending, it arms nothing (I3, I4, I9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import check_invariants

from .parts import CountingClock, Op

DAY = 86400.0


@pytest.fixture
def counting() -> CountingClock:
    return CountingClock()


@pytest.fixture
async def counted(counting: CountingClock) -> AsyncIterator[Purgatory]:
    """A purgatory on the counting clock, asleep."""
    async with Purgatory(clock=counting) as purgatory:
        await counting.manual.advance(0)
        yield purgatory
        check_invariants(purgatory)


async def test_clock_arms_one_handle_for_the_earliest(counted: Purgatory, counting: CountingClock) -> None:
    for timeout in (5.0, 7.0, 5.0, 60.0, 3600.0):
        counted.watch(Op(timeout), ["key"])
    assert (len(counting.armed), counting.cancelled) == (1, 0)
    assert counting.armed[0] <= 5.0


@pytest.mark.parametrize("how", ["watch", "reschedule"])
async def test_clock_rearms_for_an_earlier_deadline(counted: Purgatory, counting: CountingClock, how: str) -> None:
    late, op = counted.watch(Op(3600.0), ["key"]), Op(0.005)
    if how == "watch":
        counted.watch(op, ["key"])
    else:
        op = late
        assert counted.reschedule(op, 0.005)
    check_invariants(counted)
    assert (counting.armed[1:], counting.handles(fired=0)) == ([0.005], 1)
    await counting.manual.advance(0.005)
    assert await op == "late"


async def test_clock_rearms_never_for_later_deadlines(counted: Purgatory, counting: CountingClock) -> None:
    ops = [counted.watch(Op(1.0 + number * 0.1), ["key"]) for number in range(1000)]
    counted.notify("key")  # wakes the clock task, which goes back to sleep
    await counting.manual.settle()
    assert len(counting.armed) == 1
    ops[0].cancel()
    ops[1].force_complete()
    assert counted.reschedule(ops[2], 500.0)
    ops.append(counted.watch(Op(2.0), ["key"]))
    counted.notify("key")
    await counting.manual.settle()
    check_invariants(counted)
    assert len(counting.armed) == 1
    await counting.manual.advance(1.4)
    assert [op.outcome for op in ops[3:6]] == [Outcome.EXPIRED, Outcome.EXPIRED, None]


async def test_clock_jump_of_days_is_one_pass(counted: Purgatory, counting: CountingClock) -> None:
    ops = [counted.watch(Op(number / 10), ["key"]) for number in range(1, 2000)]
    counting.manual = type(counting.manual)(31 * DAY)  # the loop was suspended
    counted.watch(Op(1.0), ["key"])
    counted.notify("key")  # something wakes the clock task
    while counted.num_delayed > 1:  # in turns of turn_budget
        await counting.manual.advance(0)
    check_invariants(counted)
    assert all(op.expired for op in ops)
    assert counted.num_delayed == 1


async def test_clock_going_back_expires_nothing_early(counted: Purgatory, counting: CountingClock) -> None:
    op = counted.watch(Op(1.0), ["key"])
    await counting.manual.advance(0.5)
    counting.manual = type(counting.manual)(0.2)
    later = counted.watch(Op(1.0), ["key"])
    check_invariants(counted)
    counted.notify("key")
    await counting.manual.advance(0.79)
    check_invariants(counted)
    assert (op.outcome, later.outcome) == (None, None)


@pytest.mark.parametrize("how", ["deadline", "notify", "notify_threadsafe"])
async def test_hooks_see_no_context_variables_of_others(how: str) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody")
    seen: list[str] = []

    class Looking(Op):
        def on_complete(self) -> str:
            seen.append(variable.get())
            variable.set("the hook before")
            return ""

    async def request(user: str, op: Looking) -> None:
        variable.set(user)
        await purgatory.start()
        if how == "deadline":
            await purgatory.watch(op, ["key"])
            return
        purgatory.watch(op, ["key"])
        op.ready = True
        getattr(purgatory, how)("key")
        await op

    purgatory = Purgatory()
    for user in ("Ann", "Bob"):
        await asyncio.create_task(request(user, Looking(0.002 if how == "deadline" else None)))
    await purgatory.aclose()
    assert seen == ["nobody", "nobody"]


@pytest.mark.parametrize("is_started", [False, True])
@pytest.mark.parametrize("timeout", [None, 3600.0])
async def test_start_or_watch_in_a_request_keeps_nothing_of_it(
    requests: Any, timeout: float | None, is_started: bool
) -> None:
    async def begin() -> None:
        await purgatory.start()
        purgatory.watch(Op(timeout), ["key"])
        purgatory.notify_threadsafe("key")

    purgatory = Purgatory()
    if is_started:
        await purgatory.start()
        await asyncio.sleep(0)  # so that watch() arms the clock
    session = await requests.handle(begin)
    await asyncio.sleep(0.01)
    assert purgatory.num_delayed == 1
    assert requests.are_over(session)
    await purgatory.aclose()
