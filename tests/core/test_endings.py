"""Exactly once: an operation has one outcome, and its last hook, on_end(), one call (I5, I6)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import permutations
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Boom, Interrupt, Op, awaited, fail_in, is_empty, raising, taken


class Ending(Op):
    """Notes on_failure() and on_end() among the hooks that ran, and what they were called with."""

    def __init__(self, timeout: float | None = 60.0, *, ready: bool = False) -> None:
        super().__init__(timeout, ready=ready)
        self.ends: list[tuple[Outcome, Outcome | None]] = []
        self.failures: list[tuple[BaseException, Outcome | None]] = []

    def on_failure(self, exc: BaseException) -> None:
        self.ran.append("on_failure")
        self.failures.append((exc, self.outcome))
        self._act("on_failure")

    def on_end(self, outcome: Outcome) -> None:
        self.ran.append("on_end")
        self.ends.append((outcome, self.outcome))
        self._act("on_end")


ENDS: dict[str, tuple[Callable[[Purgatory, Op], object], Outcome, list[str]]] = {
    "complete": (lambda _, op: op.force_complete(), Outcome.COMPLETED, ["on_complete", "on_end"]),
    "complete_for_key": (lambda p, _: p.complete_for_key("key"), Outcome.COMPLETED, ["on_complete", "on_end"]),
    "expire": (lambda p, _: p.expire_all(), Outcome.EXPIRED, ["on_complete", "on_expiration", "on_end"]),
    "cancel": (lambda _, op: op.cancel(), Outcome.CANCELLED, ["on_cancel", "on_end"]),
    "fail": (lambda _, op: op.fail(Boom()), Outcome.FAILED, ["on_failure", "on_end"]),
    "fail_for_key": (lambda p, _: p.fail_for_key("key", Boom()), Outcome.FAILED, ["on_failure", "on_end"]),
    "close": (lambda p, _: p.close(), Outcome.FAILED, ["on_failure", "on_end"]),
    "try_complete": (fail_in("try_complete", "check_and_complete"), Outcome.FAILED, ["on_failure", "on_end"]),
    "on_complete": (fail_in("on_complete", "expire_all"), Outcome.FAILED, ["on_complete", "on_failure", "on_end"]),
}


@pytest.mark.parametrize("how", ENDS)
async def test_each_hook_of_an_end_is_called_once_and_on_end_is_the_last(purgatory: Purgatory, how: str) -> None:
    end, outcome, ran = ENDS[how]
    op = purgatory.watch(Ending(), ["key"])
    end(purgatory, op)
    op.cancel()
    op.force_complete()
    op.fail(Boom())
    assert (op.ran, op.ends) == (ran, [(outcome, outcome)])
    assert op.done()
    if outcome is Outcome.FAILED:
        exc = op.exception()
        assert isinstance(exc, PurgatoryClosedError if how == "close" else Boom)
        assert op.failures == [(exc, Outcome.FAILED)]
    check_invariants(purgatory)


async def test_on_end_at_the_deadline_follows_a_raising_hook(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Ending(1.0), ["key"])
    op.hooks["on_expiration"] = raising(TimeoutError())
    await clock.advance(1.0)
    assert (op.ran[-1], op.ends) == ("on_end", [(Outcome.EXPIRED, Outcome.EXPIRED)])
    assert isinstance(op.exception(), TimeoutError)


async def test_on_end_of_a_first_try_and_of_one_never_watched(purgatory: Purgatory) -> None:
    first, unwatched = Ending(ready=True), Ending()
    assert purgatory.try_complete_else_watch(first, ["key"])
    assert unwatched.cancel()
    assert [op.ends[0][0] for op in (first, unwatched)] == [Outcome.COMPLETED, Outcome.CANCELLED]


LAST = [(hook, how) for how, (_, _, ran) in ENDS.items() for hook in ("on_failure", "on_end") if hook in ran]


@pytest.mark.parametrize("fault", [LookupError(), Interrupt()])
@pytest.mark.parametrize(("hook", "how"), LAST)
async def test_last_hook_raising_is_reported_and_base_exceptions_pass(
    purgatory: Purgatory, reports: list[BaseException], hook: str, how: str, fault: BaseException
) -> None:
    end, outcome, _ = ENDS[how]
    op = purgatory.watch(Ending(), ["key"])
    op.hooks[hook] = raising(fault)
    with pytest.raises(Interrupt) if isinstance(fault, Interrupt) else nullcontext():
        end(purgatory, op)
    if outcome is Outcome.FAILED:
        assert isinstance(op.exception(), (Boom, PurgatoryClosedError))
    assert (op.outcome, taken(reports)) == (outcome, [] if isinstance(fault, Interrupt) else [fault])
    check_invariants(purgatory)


class Slotted(DelayedOperation[None]):
    """Has no room for attributes, but for its own."""

    __slots__ = ("ends",)

    def __init__(self, *, timeout: float) -> None:
        super().__init__(timeout)
        self.ends: list[Any] = []

    def try_complete(self) -> bool:
        return False

    def on_end(self, outcome: Outcome) -> None:
        self.ends.append((outcome, self.outcome))


class Mixin:
    """Overrides on_end() beside an operation."""

    def on_end(self: Any, outcome: Outcome) -> None:
        self.ends.append((outcome, self.outcome))


class Mixed(Mixin, Op):
    ends: list[Any]

    def __init__(self, *, timeout: float) -> None:
        super().__init__(timeout)
        self.ends = []


@pytest.mark.parametrize("kind", [Slotted, Mixed])
async def test_on_end_of_any_subclass_is_called_once(purgatory: Purgatory, kind: Any) -> None:
    op = purgatory.watch(kind(timeout=1.0), ["key"])
    op.cancel()
    assert op.ends == [(Outcome.CANCELLED, Outcome.CANCELLED)]


# several ends in one iteration

ORDERS = [*permutations(ENDINGS, 2), *permutations(ENDINGS, 3)]


@pytest.mark.parametrize("names", ORDERS, ids="-".join)
async def test_endings_in_one_turn_the_first_wins(purgatory: Purgatory, names: tuple[str, ...]) -> None:
    op = purgatory.watch(Op(60.0), ["a", "b"])
    task = await awaited(op)
    returned = []
    for name in names:
        returned.append(ENDINGS[name].end(purgatory, op))
        check_invariants(purgatory)
    first = ENDINGS[names[0]]
    assert returned[0] or names[0] == "close"
    assert not any(returned[1:])
    assert (op.outcome, op.ran) == (first.outcome, first.ran)
    assert await task == first.seen
    assert op.ran == first.ran
    assert is_empty(purgatory)
    stats = purgatory.statistics()
    ended = {"completed": stats.completed, "expired": stats.expired}
    ended |= {"cancelled": stats.cancelled, "failed": stats.failed}
    assert ended == {outcome.value: int(outcome is first.outcome) for outcome in Outcome}
