"""Awaited conditions: their task reads until it finds something, again after each check, and after errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from random import random
from typing import Any, Final, TypeVar, final

from .arguments import described
from .core.awaiter import take
from .core.checks import NO_CHECK
from .core.core import owner_of
from .core.endings import begin_last_read, complete_read, expire_read
from .core.kit import is_due
from .core.timeouts import Timeout
from .operation import DelayedOperation

R = TypeVar("R")


#: Seconds: the first pause after a read that failed, and the longest. Pauses double with each failure in a row.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0


@final
class Retries:
    """The errors of a read that are survived, and the pause before the next read.

    A part of each pause is random, so that the waits don't return in a herd.

    Args: errors: as in an except clause. timeout: Purgatory.timeout.
    """

    __slots__ = ("_errors", "error", "failures", "seconds", "timeout")

    def __init__(self, errors: tuple[type[Exception], ...], timeout: Callable[[float], Timeout]) -> None:
        self._errors: Final = errors
        self.timeout: Final = timeout
        #: Failures in a row, the last of them, and the seconds to pause; inf: none.
        self.failures = 0
        self.error: Exception | None = None
        self.seconds = inf

    def has_failed(self, exc: Exception) -> bool:
        """Returns: whether *exc* is survived."""
        if not isinstance(exc, self._errors):
            return False
        self.seconds = min(FIRST_PAUSE * 2.0 ** min(self.failures, 32), LONGEST_PAUSE) * (0.5 + random() / 2)
        self.failures += 1
        self.error = exc
        return True

    def clear(self) -> None:
        """A read has not failed."""
        self.failures, self.error, self.seconds = 0, None, inf


def checked_errors(retry_on: object) -> tuple[type[Exception], ...]:
    """Return *retry_on* as a tuple. Raises: TypeError: it is neither an exception class nor a tuple of them."""
    errors: tuple[Any, ...] = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    for kind in errors:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"retry_on must be a subclass of Exception, or a tuple of them, got {described(retry_on)}")
    return errors


class Rereads:
    """Tells the task of an awaited condition that a check, or the deadline, calls for another read."""

    __slots__ = (
        "_check",
        "_due_at",
        "_is_deadline_unread",
        "_woken",
        "check",
        "is_called",
        "is_excused",
        "is_unread",
    )

    def __init__(self) -> None:
        #: A key has been checked since the last read began.
        self.is_unread = False
        #: A check called for the read that is under way; or no check was due: expire_all() came before the deadline.
        self.is_called = self.is_excused = False
        #: The deadline has come since the last read began.
        self._is_deadline_unread = False
        #: The number of the newest check since the last read began.
        self._check = 0
        #: The newest check that called for the read under way, or NO_CHECK if anything else did.
        self.check = NO_CHECK
        self._due_at = 0.0
        self._woken: asyncio.Future[None] | None = None

    def tell(self, op: DelayedOperation[Any]) -> None:
        """Called by the try_complete() of *op*."""
        owner = owner_of(op)
        if begin_last_read(op):
            self.is_excused = not owner.is_unchecked(op)
            self._is_deadline_unread = True
            self._due_at = owner.loop.time()
        else:
            self.is_unread = True
            self._check = max(self._check, owner.call_for_read(op))
        self._wake()

    def begin(self) -> None:
        """A read begins: from here on, a check calls for another one."""
        self.is_called, self.is_unread = self.is_unread, False
        self.check = NO_CHECK if self._is_deadline_unread else self._check or NO_CHECK
        self._check, self._is_deadline_unread = 0, False

    def is_through(self, op: DelayedOperation[Any]) -> bool:
        """Was the read that is done begun after the deadline of *op*? reschedule() may have set another meanwhile."""
        return is_due(op) and not self._is_deadline_unread

    def end(self, op: DelayedOperation[Any], is_last: bool) -> None:
        """Complete *op*: its read has found something. It missed a trigger if no check had called for that."""
        complete_read(op, not is_last or self.is_called or self.is_unread or self.is_excused)

    def expire(self, op: DelayedOperation[Any]) -> None:
        """End *op* as EXPIRED: its last read has found nothing."""
        expire_read(op, self._due_at)

    async def wait(self, op: DelayedOperation[Any]) -> None:
        """Wait until another read is called for, or *op* has ended."""
        if not (self.is_unread or is_due(op) or op.done()):
            self._woken = asyncio.get_running_loop().create_future()
            op.add_done_callback(self._wake)
            try:
                await self._woken
            finally:
                op.remove_done_callback(self._wake)
                self._woken = None

    def _wake(self, _: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


async def read_until(
    op: DelayedOperation[Any],
    rereads: Rereads,
    read: Callable[[], Awaitable[R | None]],
    retries: Retries | None = None,
    *,
    once: bool = False,
) -> R | None:
    """Call *read* until it does not return None: now, after each check, and once more at the deadline of *op*.

    *op* stays pending until the last read is done. If it ends before that, as by close(), the read is cancelled.

    Args: retries: for reads that fail. None: the first failure is raised. once: the first read is the last.

    Returns: the first value, after completing *op*; None if there was none in time.
    Raises: exceptions of *read*, or the failure of *op*; CancelledError: it was cancelled.
    """
    owner = owner_of(op)
    try:
        while True:
            is_last = once or op.done() or is_due(op)
            rereads.begin()
            value = None
            try:
                # Completed from outside, by force_complete(): nothing is left to interrupt its last read.
                value = await (read() if op.done() else until_ended(op, read()))
                if retries is not None:
                    retries.clear()
            except Exception as exc:
                if retries is None or op.done() or not retries.has_failed(exc):
                    op.fail(exc)
                    raise
            finally:
                if rereads.check != NO_CHECK:
                    owner.count_read(value is not None)
            if op.done():
                take(op)  # raises if it failed or was cancelled; result() would keep it in its frame
            elif value is not None:
                rereads.end(op, is_last)
            elif once or (is_last and rereads.is_through(op)):
                rereads.expire(op)
            if value is not None or (is_last and op.done()):
                return value
            if retries is None or retries.seconds == inf:
                await rereads.wait(op)
            else:
                with suppress(TimeoutError):
                    async with retries.timeout(retries.seconds):
                        await rereads.wait(op)
            if op.done():
                take(op)
    finally:
        del op, rereads  # the exception keeps this frame


async def until_ended(op: DelayedOperation[Any], awaitable: Awaitable[R]) -> R | None:
    """Await *awaitable*, and cancel that when *op* ends. Returns: its result, or None if *op* ended first."""
    scope = asyncio.timeout(None)
    scopes = [scope]

    def interrupt(_: object) -> None:
        for scope in scopes:
            scope.reschedule(0.0)

    try:
        async with scope:
            op.add_done_callback(interrupt)
            try:
                return await awaitable
            finally:
                scopes.clear()
                op.remove_done_callback(interrupt)
    except TimeoutError:
        if not scope.expired():
            raise
        return None
    finally:
        del op, scope, interrupt  # the exception keeps this frame, too
