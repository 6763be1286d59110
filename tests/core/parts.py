"""Helpers of the core's tests: an operation with scripted hooks, and the ways to end one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

Hook: TypeAlias = Callable[["Op"], object]


class Boom(Exception):  # noqa: N818
    """The error of a broken hook."""


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which would also stop pytest."""


class Op(DelayedOperation[str]):
    """Completes with "result" once it is *ready*, counts its tries, and lists the other hooks that ran.

    Args: hooks: by name of a hook, a function to call inside it.
    """

    def __init__(self, timeout: float | None = None, *, ready: bool = False, **hooks: Hook) -> None:
        super().__init__(timeout)
        self.ready = ready
        self.tries = 0
        self.ran: list[str] = []
        self.hooks = hooks

    def try_complete(self) -> bool:
        self.tries += 1
        self._act("try_complete")
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        self.ran.append("on_complete")
        self._act("on_complete")
        return "result"

    def on_expiration(self) -> None:
        self.ran.append("on_expiration")
        self._act("on_expiration")

    def on_cancel(self) -> None:
        self.ran.append("on_cancel")
        self._act("on_cancel")

    def on_undelivered(self, result: str) -> None:
        assert result == "result"
        self.ran.append("on_undelivered")
        self._act("on_undelivered")

    def _act(self, hook: str) -> None:
        if hook in self.hooks:
            self.hooks[hook](self)


class LeapingClock(ManualClock):
    """A clock that can be moved while the purgatory works: set *leap* to the seconds to add."""

    leap = 0.0

    def time(self) -> float:
        return super().time() + self.leap


class Ending(NamedTuple):
    """One way to end an operation, and the expected outcome."""

    end: Callable[[Purgatory, Op], object]
    outcome: Outcome
    ran: list[str]
    seen: str


ENDINGS = {
    "complete": Ending(lambda _, op: op.force_complete(), Outcome.COMPLETED, ["on_complete"], "result"),
    "fail": Ending(lambda _, op: op.fail(Boom()), Outcome.FAILED, [], "Boom"),
    "cancel": Ending(lambda _, op: op.cancel(), Outcome.CANCELLED, ["on_cancel"], "CancelledError"),
    "expire": Ending(lambda p, _: p.expire_all(), Outcome.EXPIRED, ["on_complete", "on_expiration"], "result"),
    "close": Ending(lambda p, _: p.close(), Outcome.FAILED, [], "PurgatoryClosedError"),
}


#: The calls of a purgatory and an operation that change something.
CALLS: dict[str, Callable[[Purgatory, Op], object]] = {
    "check_and_complete": lambda purgatory, op: purgatory.check_and_complete("key"),
    "check_and_complete, limit": lambda purgatory, op: purgatory.check_and_complete("key", limit=1),
    "notify": lambda purgatory, op: purgatory.notify("key"),
    "check_all": lambda purgatory, op: purgatory.check_all(),
    "notify_all": lambda purgatory, op: purgatory.notify_all(),
    "complete_for_key": lambda purgatory, op: purgatory.complete_for_key("key"),
    "cancel_for_key": lambda purgatory, op: purgatory.cancel_for_key("key"),
    "fail_for_key": lambda purgatory, op: purgatory.fail_for_key("key", Boom()),
    "reschedule": lambda purgatory, op: purgatory.reschedule(op, 1.0),
    "expire_all": lambda purgatory, op: purgatory.expire_all(),
    "purge": lambda purgatory, op: purgatory.purge(),
    "close": lambda purgatory, op: purgatory.close(),
    "watch": lambda purgatory, op: purgatory.watch(Op(), ["key"]),
    "try_complete_else_watch": lambda purgatory, op: purgatory.try_complete_else_watch(Op(), ["key"]),
    "force_complete": lambda purgatory, op: op.force_complete(),
    "fail": lambda purgatory, op: op.fail(Boom()),
    "cancel": lambda purgatory, op: op.cancel(),
}


def raising(exc: BaseException) -> Hook:
    def hook(op: Op) -> None:
        raise exc

    return hook


async def fate(op: Op) -> str:
    """Await *op*. Returns: the result, or the name of the exception."""
    try:
        return await op
    except BaseException as exc:
        return type(exc).__name__


async def awaited(op: Op) -> asyncio.Task[str]:
    """Await *op* in a task, which has begun when this returns."""
    task = asyncio.create_task(fate(op))
    await turns(1)
    return task


def taken(reports: list[BaseException]) -> list[BaseException]:
    """Return what was reported so far, and clear the list."""
    found = reports[:]
    reports.clear()
    return found


def is_empty(purgatory: Purgatory) -> bool:
    """Whether nothing waits in *purgatory*, and nothing is left of what did."""
    check_invariants(purgatory)
    left = purgatory.statistics()
    return (left.pending, left.watched_entries, left.keys, left.buckets) == (0, 0, 0, 0)


async def turns(count: int) -> None:
    """Run *count* iterations of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def fail_in(hook: str, call: str) -> Callable[[Purgatory, Op], object]:
    """Have *hook* raise in *call*."""

    def fail(purgatory: Purgatory, op: Op) -> None:
        op.hooks[hook] = raising(Boom())
        CALLS[call](purgatory, op)

    return fail


def watch_ready(purgatory: Purgatory, count: int, keys: tuple[str, ...] = ("key",), **hooks: Any) -> list[Op]:
    """Watch *count* operations that end at their next try."""
    ops = [purgatory.watch(Op(60.0, **hooks), keys) for _ in range(count)]
    for op in ops:
        op.ready = True
    return ops


def ended(ops: list[Op]) -> list[int]:
    """Return the numbers of the operations that have completed."""
    return [number for number, op in enumerate(ops) if op.outcome is Outcome.COMPLETED]
