"""Hooks that raise harm their own operation only (I11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, Interrupt, Op, fate, is_empty, raising, taken, turns

SYNC_EVENTS: dict[str, Callable[[Purgatory], object]] = {
    "check": lambda purgatory: purgatory.check_and_complete("key"),
    "check_all": lambda purgatory: purgatory.check_all(),
    "expire_all": lambda purgatory: purgatory.expire_all(),
}
EVENTS = [*SYNC_EVENTS, "soon", "expiry"]


async def cause(event: str, purgatory: Purgatory, clock: ManualClock) -> None:
    if event in SYNC_EVENTS:
        SYNC_EVENTS[event](purgatory)
    elif event == "soon":
        purgatory.notify("key")
    await clock.advance(1.0 if event == "expiry" else 0)


def watch_three(purgatory: Purgatory, hook: str, exc: BaseException) -> list[Op]:
    """Three operations under one key and due together; the *hook* of the middle one raises *exc* on the event."""
    ops = [purgatory.watch(Op(1.0), ["key", "other"]) for _ in range(3)]
    for op in ops:
        op.ready = True
    ops[1].hooks[hook] = raising(exc)
    return ops


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("hook", ["try_complete", "on_complete"])
@pytest.mark.parametrize("error", [Boom, StopIteration])
async def test_hook_raising_fails_its_own_op_only(
    purgatory: Purgatory,
    clock: ManualClock,
    reports: list[BaseException],
    event: str,
    hook: str,
    error: type[Exception],
) -> None:
    exc = error()
    first, bad, last = watch_three(purgatory, hook, exc)
    await cause(event, purgatory, clock)
    assert [op.outcome for op in (first, bad, last)] == [Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED]
    failure = bad.exception()
    if isinstance(exc, StopIteration):  # raised in a coroutine it would end that instead
        assert isinstance(failure, RuntimeError)
        assert failure.__cause__ is exc
    else:
        assert failure is exc
    assert reports == [failure]
    stats = purgatory.statistics()
    assert (stats.completed, stats.failed, stats.pending, stats.watched_entries) == (2, 1, 0, 0)
    reports.clear()


@pytest.mark.parametrize("event", SYNC_EVENTS)
@pytest.mark.parametrize("hook", ["try_complete", "on_complete"])
@pytest.mark.parametrize("error", [asyncio.CancelledError, Interrupt])
async def test_hook_base_exception_passes_but_loses_none(
    purgatory: Purgatory, clock: ManualClock, event: str, hook: str, error: type[BaseException]
) -> None:
    exc = error()
    first, bad, last = watch_three(purgatory, hook, exc)
    with pytest.raises(error) as raised:
        SYNC_EVENTS[event](purgatory)
    assert raised.value is exc
    check_invariants(purgatory)
    assert bad.outcome is Outcome.FAILED
    assert bad.exception() is exc
    await clock.advance(0)
    assert (first.outcome, last.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)


async def test_hook_base_exception_keeps_nested_checks(purgatory: Purgatory) -> None:
    def check_and_raise(op: Op) -> None:
        purgatory.check_and_complete("other")
        raise Interrupt

    bad = purgatory.watch(Op(on_complete=check_and_raise), ["key"])
    other = purgatory.watch(Op(), ["other"])
    bad.ready = other.ready = True
    with pytest.raises(Interrupt):
        purgatory.check_and_complete("key")
    assert isinstance(bad.exception(), Interrupt)
    await turns(2)
    assert other.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("event", ["soon", "expiry", "nested"])
@pytest.mark.parametrize("hook", ["try_complete", "on_complete"])
async def test_hook_cancelled_error_in_clock_task_is_a_failure(
    purgatory: Purgatory, clock: ManualClock, reports: list[BaseException], event: str, hook: str
) -> None:
    """Nothing awaits the operation, so its failure is reported, and only once. The clock task goes on."""
    exc = asyncio.CancelledError()
    first, bad, last = watch_three(purgatory, hook, exc)
    if event == "nested":
        for each in (Op(60.0, on_complete=lambda _: purgatory.check_and_complete("key")), Op(60.0)):
            purgatory.watch(each, ["outer"]).ready = True
        purgatory.notify("outer")
        await turns(3)
        assert not purgatory.waiting("outer")
    await cause(event, purgatory, clock)
    await turns(5)
    assert [op.outcome for op in (first, bad, last)] == [Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED]
    assert (taken(reports), bad.exception(), purgatory.is_open) == ([exc], exc, True)


@pytest.mark.parametrize("event", ["soon", "expiry"])
@pytest.mark.parametrize("hook", ["try_complete", "on_complete"])
async def test_hook_base_exception_in_clock_task_closes(
    purgatory: Purgatory, clock: ManualClock, reports: list[BaseException], event: str, hook: str
) -> None:
    exc = Interrupt()
    first, bad, last = watch_three(purgatory, hook, exc)
    far = purgatory.watch(Op(60.0), ["far"])
    await cause(event, purgatory, clock)
    assert (first.outcome, bad.outcome, far.outcome) == (Outcome.COMPLETED, Outcome.FAILED, Outcome.FAILED)
    assert bad.exception() is exc
    assert isinstance(far.exception(), PurgatoryClosedError)
    assert last.done()
    with pytest.raises(PurgatoryClosedError):
        purgatory.watch(Op(1.0), ["key"])
    assert exc in reports
    reports.clear()


@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("hook", ["try_complete", "on_complete"])
@pytest.mark.parametrize("error", [Boom, asyncio.CancelledError, Interrupt])
async def test_hook_raising_in_watch_leaves_nothing(
    purgatory: Purgatory, clock: ManualClock, tries: int, hook: str, error: type[BaseException]
) -> None:
    exc = error()

    def on_try(op: Op) -> None:
        op.ready = hook == "on_complete" and op.tries == tries
        if hook == "try_complete" and op.tries == tries:
            raise exc

    op = Op(1.0, try_complete=on_try, on_complete=raising(exc))
    if isinstance(exc, Exception):
        assert purgatory.try_complete_else_watch(op, ["a", "b"]) is True
    else:
        with pytest.raises(error):
            purgatory.watch(op, ["a", "b"])
    check_invariants(purgatory)
    assert (op.outcome, op.tries, op.keys) == (Outcome.FAILED, tries, ())
    assert op.exception() is exc
    assert is_empty(purgatory)
    await clock.advance(2.0)
    assert op.tries == tries


async def test_on_cancel_base_exception_loses_none(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(1.0), ["key"]) for _ in range(3)]
    ops[1].hooks["on_cancel"] = raising(Interrupt())
    with pytest.raises(Interrupt):
        purgatory.cancel_for_key("key")
    check_invariants(purgatory)
    assert [op.ran for op in ops] == [["on_cancel"]] * 3


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Boom, Outcome.EXPIRED), (StopIteration, Outcome.EXPIRED), (asyncio.CancelledError, Outcome.FAILED)],
)
async def test_on_expiration_raising_in_clock_task(
    purgatory: Purgatory,
    clock: ManualClock,
    reports: list[BaseException],
    error: type[BaseException],
    outcome: Outcome,
) -> None:
    bad, good = (purgatory.watch(Op(1.0), ["key"]) for _ in range(2))
    bad.hooks["on_expiration"] = raising(error())
    await clock.advance(1.0)
    assert (bad.outcome, bad.ran) == (outcome, ["on_complete", "on_expiration"])
    assert isinstance(bad.exception(), RuntimeError if error is StopIteration else error)
    assert {type(exc) for exc in taken(reports)} == ({error} if outcome is Outcome.FAILED else set())
    assert good.outcome is Outcome.EXPIRED


async def test_failure_of_another_closed_purgatory_is_reported(
    purgatory: Purgatory, clock: ManualClock, reports: list[BaseException]
) -> None:
    async with Purgatory(clock=clock) as other:
        pass
    op = purgatory.watch(Op(1.0, on_complete=lambda _: other.watch(Op(1.0), ["key"])), ["key"])
    op.force_complete()
    await turns(2)
    assert op.outcome is Outcome.FAILED
    assert [type(exc) for exc in taken(reports)] == [PurgatoryClosedError]


async def test_failure_awaited_one_step_later_is_not_reported(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["key"])

    def fail_behind_the_clock() -> None:
        purgatory.notify("key")  # the clock task has its turn right after this
        tasks.append(asyncio.create_task(fate(op)))
        op.fail(Boom())

    tasks: list[asyncio.Task[str]] = []
    asyncio.get_running_loop().call_soon(fail_behind_the_clock)
    await turns(3)
    assert await tasks[0] == "Boom"  # and `reports` stays empty
