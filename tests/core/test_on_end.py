"""on_end(): called once for each operation, however it ends, after the hooks of that end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.operations import DelayedAll
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import Boom, Interrupt, Op, raising


class Ending(Op):
    """Notes on_end() among the hooks that ran, and the outcomes it was called with."""

    def __init__(self, timeout: float | None = 60.0, *, ready: bool = False) -> None:
        super().__init__(timeout, ready=ready)
        self.ends: list[tuple[Outcome, Outcome | None]] = []

    def on_failure(self, exc: BaseException) -> None:
        self.ran.append("on_failure")

    def on_end(self, outcome: Outcome) -> None:
        self.ran.append("on_end")
        self.ends.append((outcome, self.outcome))
        self._act("on_end")


def fail_in(hook: str) -> Callable[[Purgatory, Op], object]:
    def end(purgatory: Purgatory, op: Op) -> None:
        op.ready = True
        op.hooks[hook] = raising(Boom())
        purgatory.check_and_complete("key")

    return end


ENDS: dict[str, tuple[Callable[[Purgatory, Op], object], Outcome, list[str]]] = {
    "complete": (lambda _, op: op.force_complete(), Outcome.COMPLETED, ["on_complete", "on_end"]),
    "complete_for_key": (lambda p, _: p.complete_for_key("key"), Outcome.COMPLETED, ["on_complete", "on_end"]),
    "expire": (lambda p, _: p.expire_all(), Outcome.EXPIRED, ["on_complete", "on_expiration", "on_end"]),
    "cancel": (lambda _, op: op.cancel(), Outcome.CANCELLED, ["on_cancel", "on_end"]),
    "fail": (lambda _, op: op.fail(Boom()), Outcome.FAILED, ["on_failure", "on_end"]),
    "close": (lambda p, _: p.close(), Outcome.FAILED, ["on_failure", "on_end"]),
    "try_complete": (fail_in("try_complete"), Outcome.FAILED, ["on_failure", "on_end"]),
    "on_complete": (fail_in("on_complete"), Outcome.FAILED, ["on_complete", "on_failure", "on_end"]),
}


@pytest.mark.parametrize("how", ENDS)
async def test_on_end_is_called_once_after_the_other_hooks(purgatory: Purgatory, how: str) -> None:
    end, outcome, ran = ENDS[how]
    op = purgatory.watch(Ending(), ["key"])
    end(purgatory, op)
    op.cancel()
    op.force_complete()
    assert (op.ran, op.ends) == (ran, [(outcome, outcome)])
    assert op.done()
    if outcome is Outcome.FAILED:
        op.exception()
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


@pytest.mark.parametrize("how", ENDS)
async def test_on_end_raising_is_reported(purgatory: Purgatory, reports: list[BaseException], how: str) -> None:
    end, outcome, _ = ENDS[how]
    fault = LookupError()
    op = purgatory.watch(Ending(), ["key"])
    op.hooks["on_end"] = raising(fault)
    end(purgatory, op)
    if outcome is Outcome.FAILED:
        op.exception()
    assert (op.outcome, reports) == (outcome, [fault])
    reports.clear()


async def test_on_end_base_exception_passes(purgatory: Purgatory) -> None:
    op = purgatory.watch(Ending(), ["key"])
    op.hooks["on_end"] = raising(Interrupt())
    with pytest.raises(Interrupt):
        op.force_complete()
    assert op.result() == "result"
    check_invariants(purgatory)


async def test_on_end_async_is_reported(purgatory: Purgatory, reports: list[BaseException]) -> None:
    class Async(Op):
        async def on_end(self, outcome: Outcome) -> None:  # type: ignore[override]
            self.ran.append("on_end")

    purgatory.watch(Async(60.0), ["key"]).force_complete()
    assert [str(exc) for exc in reports] == ["Async.on_end must be a plain function, not async def: hooks never wait"]
    reports.clear()


class Inheriting(Ending):
    """Does not override on_end() itself."""


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


class Mixed(Mixin, DelayedAll[str, int]):
    ends: list[Any]


class Calling(Slotted):
    __slots__ = ()

    def on_end(self, outcome: Outcome) -> None:
        super().on_end(outcome)


@pytest.mark.parametrize("kind", [Inheriting, Slotted, Calling])
async def test_on_end_of_any_subclass_is_called_once(purgatory: Purgatory, kind: Any) -> None:
    op = purgatory.watch(kind(timeout=1.0), ["key"])
    op.cancel()
    assert op.ends == [(Outcome.CANCELLED, Outcome.CANCELLED)]


async def test_on_end_of_a_mixin_and_a_ready_made_operation(purgatory: Purgatory) -> None:
    op = Mixed({"key": lambda: 1}, 5.0, default=0)
    op.ends = []
    assert await purgatory.watch(op, ["key"]) == {"key": 1}
    assert op.ends == [(Outcome.COMPLETED, Outcome.COMPLETED)]


async def test_on_end_of_a_class_with_a_new_of_its_own(purgatory: Purgatory) -> None:
    ended: list[Outcome] = []

    class Named(DelayedOperation[None]):
        def __new__(cls, name: str) -> Named:
            op = super().__new__(cls)
            op.name = name
            return op

        def __init__(self, name: str) -> None:
            super().__init__(None)

        name: str

        def try_complete(self) -> bool:
            return self.force_complete()

        def on_end(self, outcome: Outcome) -> None:
            ended.append(outcome)

    op = purgatory.watch(Named("first"), ["key"])
    assert (op.name, ended) == ("first", [Outcome.COMPLETED])
