"""Awaited conditions: their task reads until it finds something, again after each check, and after errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from random import random
from typing import Any, Final, TypeVar, final

from .arguments import described, require, require_seconds
from .core.awaiter import take
from .core.checks import NO_CHECK
from .core.core import owner_of
from .core.standing import StandingWait, call, enter, interrupt, leave
from .core.timeouts import Timeout

R = TypeVar("R")


#: Seconds: the first pause after a read that failed, and the longest. Pauses double with each failure in a row.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0


@final
class ReadPauses:
    """When a read follows though nothing calls for it: after an error that is survived, and every so often.

    A part of each pause is random, so that the waits don't return in a herd.

    Args:
        errors: as in an except clause.
        every: seconds until the next read, at most; a quarter of that is random. None: no limit.
        timeout: Purgatory.timeout.
    """

    __slots__ = ("_errors", "_every", "error", "failures", "seconds", "timeout")

    def __init__(
        self, errors: tuple[type[Exception], ...], every: float | None, timeout: Callable[[float], Timeout]
    ) -> None:
        self._errors: Final = errors
        self._every: Final = inf if every is None else every
        self.timeout: Final = timeout
        #: Failures in a row, the last of them, and the seconds until the next read; inf: no limit.
        self.failures = 0
        self.error: Exception | None = None
        self.seconds = self._next()

    def has_failed(self, exc: Exception) -> bool:
        """Returns: whether *exc* is survived."""
        if not isinstance(exc, self._errors):
            return False
        pause = min(FIRST_PAUSE * 2.0 ** min(self.failures, 32), LONGEST_PAUSE) * (0.5 + random() / 2)
        self.seconds = min(pause, self._next())
        self.failures += 1
        self.error = exc
        return True

    def clear(self) -> None:
        """A read has not failed."""
        self.failures, self.error, self.seconds = 0, None, self._next()

    def _next(self) -> float:
        return self._every * (1.0 - random() / 4)


def pauses_of(retry_on: Any, every: Any, timeout: Callable[[float], Timeout]) -> ReadPauses | None:
    """Return the pauses of a wait; None if it has none. Raises: TypeError, ValueError: an argument is wrong."""
    require_positive("every", every)
    errors = checked_errors(retry_on)
    return ReadPauses(errors, every, timeout) if errors or every is not None else None


def require_positive(name: str, seconds: Any) -> None:
    """Raise TypeError or ValueError unless *seconds* is None, or a number of seconds > 0."""
    if seconds is not None:
        require_seconds(name, seconds)
        require(seconds > 0.0, name, "> 0 s", seconds)


def checked_errors(retry_on: object) -> tuple[type[Exception], ...]:
    """Return *retry_on* as a tuple. Raises: TypeError: it is neither an exception class nor a tuple of them."""
    errors: tuple[Any, ...] = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    for kind in errors:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"retry_on must be a subclass of Exception, or a tuple of them, got {described(retry_on)}")
    return errors


async def read_until(
    op: StandingWait,
    read: Callable[[StandingWait], Awaitable[R | None]],
    pauses: ReadPauses | None = None,
) -> R | None:
    """Call *read* until it does not return None: now, after each check, and once more at the deadline of *op*.

    *op*, which is single, stays pending until the last read is done. If it ends before that, as by close(), the read is
    cancelled. *read* must not keep its argument in its frame.

    Args: pauses: after which it reads in any case. None: there are none, and the first failure is raised.

    Returns: the first value, after completing *op*; None if there was none in time.
    Raises: exceptions of *read*, or the failure of *op*; CancelledError: it was cancelled.
    """
    if not op.done() and owner_of(op).observers.observers:
        op.add_done_callback(_note_context)
    try:
        while True:
            if op.begin():
                value, has_failed = None, False
                try:
                    value = await read(op)
                    if pauses is not None:
                        pauses.clear()
                except BaseException as exc:
                    if not leave(op):
                        if not isinstance(exc, Exception):
                            op.give_up()
                            raise
                        if pauses is None or op.done() or not pauses.has_failed(exc):
                            op.give_up()
                            op.fail(exc)
                            raise
                    has_failed = True
                op.end(value is not None, has_failed)
                if value is not None:
                    take(op)  # raises if it has failed or was cancelled; result() would keep it in its frame
                    return value
            else:
                woken = op.wait()
                if woken is None:
                    take(op)
                    return None
                if pauses is None or pauses.seconds == inf:
                    await woken
                else:
                    try:
                        async with pauses.timeout(pauses.seconds):
                            await woken
                    except TimeoutError:
                        call(op, NO_CHECK)
    finally:
        del op  # the exception keeps this frame


def _note_context(_: object) -> None:
    """Do nothing. Observers get the context in which this was added: the task itself awaits another future."""


@final
class UntilEnded:
    """Cancels what its block awaits when *op* ends. The block is left then, without an exception."""

    __slots__ = ("_op",)

    def __init__(self, op: StandingWait) -> None:
        self._op: Final = op

    def __enter__(self) -> None:
        enter(self._op)
        if self._op.done():
            self._op.get_loop().call_soon(interrupt, self._op)

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        return leave(self._op) and isinstance(exc, asyncio.CancelledError)
