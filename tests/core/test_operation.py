"""The operation by itself: its timeout, its states, its result."""

from __future__ import annotations

import asyncio
import copy
import math
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock

from .parts import ENDINGS, Boom, Interrupt, Op, awaited, fate

NEGATIVE = [-1, -1e-9, -math.inf, Decimal("-0.5"), Fraction(-1, 2), -(10**400)]


@pytest.mark.parametrize("timeout", NEGATIVE, ids=lambda value: str(value)[:9])
async def test_timeout_negative_counts_as_0(purgatory: Purgatory, clock: ManualClock, timeout: Any) -> None:
    op = purgatory.watch(Op(timeout), ["key"])
    assert (op.timeout, op.done()) == (0.0, False)  # never inside watch()
    await clock.advance(0.001)
    assert op.expired


#: Whatever takes a number of seconds. They get an operation that waits, and a new one.
TAKERS: dict[str, Callable[[Purgatory, Any, Any, Any], object]] = {
    "operation": lambda purgatory, waiting, new, seconds: Op(seconds),
    "watch": lambda purgatory, waiting, new, seconds: purgatory.watch(new, ["new"], timeout=seconds),
    "reschedule": lambda purgatory, waiting, new, seconds: purgatory.reschedule(waiting, seconds),
    "timeout": lambda purgatory, waiting, new, seconds: purgatory.timeout(seconds),
    "timeout_at": lambda purgatory, waiting, new, seconds: purgatory.timeout_at(seconds),
    "deadline": lambda purgatory, waiting, new, seconds: purgatory.deadline(seconds),
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("seconds", [math.nan, Decimal("nan"), "1", b"1", [1.0], object(), 1j, True])
async def test_no_number_of_seconds_is_refused_and_changes_nothing(
    purgatory: Purgatory, clock: ManualClock, name: str, seconds: Any
) -> None:
    waiting, new = purgatory.watch(Op(1.0), ["waiting"]), Lean("yes", ready=True)
    error = ValueError if isinstance(seconds, float | Decimal) else TypeError
    parameter = {"timeout_at": "when", "deadline": "seconds"}.get(name, "timeout")
    said = f"^{parameter} must be a number of seconds or None, got {re.escape(repr(seconds))}"
    with pytest.raises(error, match=said):
        TAKERS[name](purgatory, waiting, new, seconds)
    assert await purgatory.watch(new, ["new"], timeout=0) == "yes"
    await clock.advance(1.0)
    assert (waiting.timeout, waiting.expired) == (1.0, True)


@pytest.mark.parametrize("timeout", [0, 3, 0.5, Fraction(1, 4), Decimal("0.25"), 4e9])
async def test_timeout_of_any_number_type_is_kept(timeout: Any) -> None:
    assert Op(timeout).timeout == timeout


@pytest.mark.parametrize("timeout", [None, math.inf, 1e10, 1e300, 10**400], ids=lambda value: str(value)[:9])
async def test_timeout_out_of_range_is_no_deadline(purgatory: Purgatory, clock: ManualClock, timeout: Any) -> None:
    op = purgatory.watch(Op(timeout), ["key"])
    await clock.advance(1e6)
    assert (op.timeout, op.outcome, purgatory.statistics().buckets) == (None, None, 0)


@dataclass(eq=False)
class Lean(DelayedOperation[str]):
    """Its constructor does not call DelayedOperation's."""

    text: str
    ready: bool = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        return self.text


async def test_watch_timeout_needs_no_constructor(purgatory: Purgatory, clock: ManualClock) -> None:
    op, late = Lean("yes"), Lean("late")
    assert (op.done(), op.outcome, op.timeout, op.keys) == (False, None, None, ())
    assert purgatory.watch(op, ["key"], timeout=3.0) is op
    assert not purgatory.try_complete_else_watch(late, ["other"], timeout=3.0)
    assert (op.timeout, op.keys) == (3.0, ("key",))
    op.ready = True
    assert purgatory.check_and_complete("key") == 1
    assert await op == "yes"
    await clock.advance(2.999)
    assert not late.done()
    await clock.advance(0.001)
    assert (late.expired, await late) == (True, "late")


async def test_watch_timeout_replaces_that_of_the_constructor(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(1.0), ["key"], timeout=2.0)
    assert op.timeout == 2.0
    await clock.advance(1.5)
    assert not op.done()
    await clock.advance(0.5)
    assert op.expired


async def test_watch_timeout_none_is_no_deadline(purgatory: Purgatory) -> None:
    op = purgatory.watch(Lean(""), ["key"], timeout=None)
    assert (op.timeout, op.done(), purgatory.statistics().buckets) == (None, False, 0)


@pytest.mark.parametrize(("name", "expired"), [("complete", False), ("expire", True)])
async def test_states_inside_on_complete(purgatory: Purgatory, name: str, expired: bool) -> None:
    seen: list[object] = []

    def look(op: Op) -> None:
        seen.extend((op.done(), op.outcome, op.expired, op.force_complete(), op.fail(Boom()), op.cancel()))
        seen.extend((purgatory.num_delayed, purgatory.watched_entries, purgatory.statistics().buckets))
        for ask in (op.result, op.exception):
            with pytest.raises(asyncio.InvalidStateError):
                ask()

    op = purgatory.watch(Op(3.0, on_complete=look), ["a", "b"])
    ENDINGS[name].end(purgatory, op)
    assert seen == [True, ENDINGS[name].outcome, expired, False, False, False, 0, 0, 0]
    assert op.ran == ENDINGS[name].ran


@pytest.mark.parametrize("exc", ["boom", Boom, None, Interrupt(), asyncio.CancelledError(), StopIteration()])
async def test_fail_with_no_exception_raises_type_error(purgatory: Purgatory, exc: Any) -> None:
    op = purgatory.watch(Op(3.0), ["key"])
    for fail in (op.fail, partial(purgatory.fail_for_key, "key"), partial(purgatory.fail_for_key, "unknown")):
        with pytest.raises(TypeError, match="exc"):
            fail(exc)
    assert (op.outcome, purgatory.num_delayed) == (None, 1)


@pytest.mark.parametrize("name", ["complete", "fail", "cancel"])
async def test_await_ended_before_it_was_watched(purgatory: Purgatory, name: str) -> None:
    op = Op(3.0)
    ENDINGS[name].end(purgatory, op)
    assert await fate(op) == ENDINGS[name].seen
    assert op.ran == ENDINGS[name].ran


@pytest.mark.parametrize(("msg", "args"), [(None, ()), ("gone", ("gone",)), ("", ("",)), (0, (0,))])
async def test_cancel_msg_reaches_the_awaiter(purgatory: Purgatory, msg: object, args: tuple[object, ...]) -> None:
    op = purgatory.watch(Op(), ["key"])
    asyncio.get_running_loop().call_soon(op.cancel, msg)
    with pytest.raises(asyncio.CancelledError) as raised:
        await op
    assert raised.value.args == args


async def test_try_complete_not_overridden_fails(purgatory: Purgatory) -> None:
    """A misspelt name raises at once, because not all users run a type checker."""
    with pytest.raises(NotImplementedError, match="try_complete"):
        await purgatory.watch(DelayedOperation[None](3.0), ["key"])


class Slotted(DelayedOperation[object]):
    __slots__ = ()

    def try_complete(self) -> bool:
        return self.force_complete()


async def test_on_complete_not_overridden_gives_none(purgatory: Purgatory) -> None:
    op = Slotted(3.0)
    assert (await purgatory.watch(op, ["key"]), op.outcome) == (None, Outcome.COMPLETED)


@pytest.mark.parametrize("name", ["complete", "fail", "cancel", "expire"])
async def test_repr_shows_class_and_state(purgatory: Purgatory, clock: ManualClock, name: str) -> None:
    op = Op(3.0)
    assert re.search(r"Op .*3\.0", repr(op))
    purgatory.watch(op, ["orders", ("key", 7)])
    await clock.advance(2.5)
    assert "pending timeout=3.0 keys=('orders', ('key', 7)) waited=2.5 s" in repr(op)
    task = await awaited(op)
    ENDINGS[name].end(purgatory, op)
    assert ENDINGS[name].outcome.value in repr(op)
    assert "waited" not in repr(op)
    await task


async def test_repr_of_a_task_shows_the_operation_that_it_awaits(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(3.0), ["orders"])
    task = await awaited(op)
    assert f"wait_for=<Awaiter of {op!r}>" in repr(task)
    op.cancel()
    await task


async def test_copy_is_refused_and_the_purgatory_counts_on(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(9.0), ["key"])
    with pytest.raises(TypeError, match=r"Op cannot be copied or pickled: it waits once; make another"):
        copy.copy(op)
    op.cancel()
    assert purgatory.num_delayed == 0


async def test_user_attributes_may_have_any_name(purgatory: Purgatory, clock: ManualClock) -> None:
    class Named(Op):
        def __init__(self) -> None:
            super().__init__(1.0)
            self.deadline = self.result_ = self.state = self.callbacks = self.loop = self._loop = "mine"

    op = purgatory.watch(Named(), ["key"])
    await clock.advance(1.0)
    assert (op.expired, op.deadline, op._loop) == (True, "mine", "mine")


async def parked_bytes(purgatory: Purgatory, first: int) -> float:
    """Bytes of a parked operation, if *first* of its class have ended at their first try."""

    class Fetch(DelayedOperation[str]):
        ready = True

        def __init__(self, log: str, timeout: float) -> None:
            super().__init__(timeout)
            self.log = log

        def try_complete(self) -> bool:
            return Fetch.ready and self.force_complete()

    for _ in range(first):
        purgatory.watch(Fetch("a", 30.0), ["a"])
    Fetch.ready = False
    keys = [(number,) for number in range(2_000)]
    tracemalloc.start()
    try:
        for key in keys:
            purgatory.watch(Fetch("a", 30.0), key)
        return tracemalloc.get_traced_memory()[0] / len(keys)
    finally:
        tracemalloc.stop()


async def test_memory_does_not_depend_on_those_before(purgatory: Purgatory) -> None:
    assert await parked_bytes(purgatory, 100) < 1.1 * await parked_bytes(purgatory, 0)
