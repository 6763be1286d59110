"""on_failure(): called once for each operation that ends FAILED, by any cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import check_invariants

from .parts import Boom, Interrupt, Op, raising


class Failing(Op):
    """Notes each call of on_failure() with its outcome then, and lets the hook of that name act."""

    def __init__(self) -> None:
        super().__init__(60.0)
        self.failures: list[tuple[BaseException, Outcome | None]] = []

    def on_failure(self, exc: BaseException) -> None:
        self.failures.append((exc, self.outcome))
        self._act("on_failure")


def fail_in(hook: str) -> Callable[[Purgatory, Failing], object]:
    def end(purgatory: Purgatory, op: Failing) -> None:
        op.ready = True
        op.hooks[hook] = raising(Boom())
        purgatory.check_and_complete("key")

    return end


ENDS: dict[str, Callable[[Purgatory, Failing], object]] = {
    "fail": lambda _, op: op.fail(Boom()),
    "fail_for_key": lambda purgatory, _: purgatory.fail_for_key("key", Boom()),
    "close": lambda purgatory, _: purgatory.close(),
    "try_complete": fail_in("try_complete"),
    "on_complete": fail_in("on_complete"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_on_failure_is_called_once_with_the_exception(purgatory: Purgatory, how: str) -> None:
    op = purgatory.watch(Failing(), ["key"])
    ENDS[how](purgatory, op)
    op.fail(Boom())
    exc = op.exception()
    assert isinstance(exc, PurgatoryClosedError if how == "close" else Boom)
    assert op.failures == [(exc, Outcome.FAILED)]
    check_invariants(purgatory)


@pytest.mark.parametrize("how", ["complete", "expire", "cancel"])
async def test_on_failure_is_not_called_otherwise(purgatory: Purgatory, how: str) -> None:
    op = purgatory.watch(Failing(), ["key"])
    {"complete": op.force_complete, "expire": purgatory.expire_all, "cancel": op.cancel}[how]()
    assert (op.done(), op.failures) == (True, [])


@pytest.mark.parametrize("how", ENDS)
async def test_on_failure_raising_is_reported(purgatory: Purgatory, reports: list[BaseException], how: str) -> None:
    fault = LookupError()
    op = purgatory.watch(Failing(), ["key"])
    op.hooks["on_failure"] = raising(fault)
    ENDS[how](purgatory, op)
    assert isinstance(op.exception(), (Boom, PurgatoryClosedError))
    assert (op.outcome, reports) == (Outcome.FAILED, [fault])
    reports.clear()


async def test_on_failure_base_exception_passes(purgatory: Purgatory) -> None:
    op = purgatory.watch(Failing(), ["key"])
    op.hooks["on_failure"] = raising(Interrupt())
    with pytest.raises(Interrupt):
        op.fail(Boom())
    assert isinstance(op.exception(), Boom)
    check_invariants(purgatory)


async def test_on_failure_async_is_reported(purgatory: Purgatory, reports: list[BaseException]) -> None:
    class Async(Op):
        async def on_failure(self, exc: BaseException) -> None:  # type: ignore[override]
            self.ran.append("on_failure")

    op = purgatory.watch(Async(60.0), ["key"])
    op.fail(Boom())
    op.exception()
    assert [str(exc) for exc in reports] == [
        "Async.on_failure must be a plain function, not async def: hooks never wait"
    ]
    assert op.ran == []
    reports.clear()
