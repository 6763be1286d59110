"""Helpers of the core's tests: an operation with scripted hooks, and the ways to end one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from aiopurgatory import DelayedOperation, Outcome, Purgatory
from aiopurgatory.testing import ManualClock

Hook: TypeAlias = Callable[["Op"], object]


class Boom(Exception):  # noqa: N818
    """The error of a broken hook."""


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which would stop pytest, too."""


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


async def turns(count: int) -> None:
    """Run *count* iterations of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
