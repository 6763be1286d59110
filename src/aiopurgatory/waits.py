"""Awaited conditions: their task reads until it finds something, again after each check, and after errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from random import random
from typing import Any, Final, TypeVar, final

from .arguments import described, require, require_seconds
from .clock import backoff
from .condition import ConditionWait, is_awaitable
from .core.awaited import AwaitedWait, begin, end, give_up, reading_of
from .core.awaiter import take
from .core.bell import NO_CHECK
from .core.core import Core, owner_of
from .core.endings import put_back
from .core.operation import Operation
from .core.stream_wait import StreamWait
from .core.timeouts import Timeout

R = TypeVar("R")


#: Seconds: the first pause after a read that failed, and the longest. Pauses double with each failure in a row.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
#: Reads of a wait that follow on each other at once before that is said.
MANY_READS: Final = 1_000


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

    def has_failed(self, op: Operation, exc: BaseException) -> bool:
        """A read for *op* raised *exc*. Returns: whether that is survived."""
        if not isinstance(exc, self._errors):
            return False
        if not op.done():
            owner_of(op).finder.failed_read(op, exc)
        self.seconds = min(backoff(self.failures, FIRST_PAUSE, LONGEST_PAUSE), self._next())
        self.failures += 1
        self.error = exc
        return True

    def clear(self) -> None:
        """A read has not failed."""
        self.failures, self.error, self.seconds = 0, None, self._next()

    def needs_no_check(self) -> bool:
        """Whether the next read needs no check: it comes every so often, or makes up for a failed one."""
        return self._every != inf or self.failures > 0

    def _next(self) -> float:
        return self._every * (1.0 - random() / 4)


def pauses_of(retry_on: Any, every: Any, timeout: Callable[[float], Timeout]) -> ReadPauses | None:
    """Return the pauses of a wait; None if it has none. Raises: TypeError, ValueError: an argument is wrong."""
    require_positive("every", every)
    errors: tuple[Any, ...] = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    for kind in errors:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"retry_on must be a subclass of Exception, or a tuple of them, got {described(retry_on)}")
    return ReadPauses(errors, every, timeout) if errors or every is not None else None


def require_positive(name: str, seconds: Any) -> None:
    """Raise TypeError or ValueError unless *seconds* is None, or a number of seconds > 0."""
    if seconds is not None:
        require_seconds(name, seconds)
        require(seconds > 0.0, name, "> 0 s", seconds)


async def read_until(
    op: AwaitedWait, read: Callable[[Any], Awaitable[R | None]], pauses: ReadPauses | None = None
) -> R | None:
    """Call *read* until it does not return None: now, after each check, and once more at the deadline of *op*.

    *op* stays pending until the last read is done. If it ends before that, as by close(), the read is cancelled.
    *read* must not keep its argument, which is *op*, in its frame.

    Args: pauses: after which it reads in any case. None: there are none, and the first failure is raised.

    Returns: the first value, after completing *op*; None if there was none in time.
    Raises: exceptions of *read*, or the failure of *op*; CancelledError: it was cancelled.
    """
    core, reading = owner_of(op), reading_of(op)
    if not op.done() and core.observers.observers:
        op.add_done_callback(_note_context)
    in_a_row = 0
    try:
        while True:
            if begin(op, reading):
                if pauses is not None and pauses.needs_no_check():
                    reading.excuse()
                value, has_failed = None, False
                try:
                    value = await read(op)
                    if pauses is not None:
                        pauses.clear()
                except BaseException as exc:
                    is_cancelled = reading.is_cancelled()
                    is_survived = pauses is not None and not (is_cancelled or op.done()) and pauses.has_failed(op, exc)
                    if not reading.leave() and not is_survived:
                        give_up(op, reading)
                        if isinstance(exc, Exception):
                            if is_cancelled:  # its driver has made an error of that
                                raise asyncio.CancelledError from exc
                            op.fail(exc)
                        raise
                    has_failed = True
                end(op, reading, value is not None, has_failed)
                if value is not None:
                    take(op)  # raises if it has failed or was cancelled; result() would keep it in its frame
                    return value
                if reading.is_rung:  # perhaps by the read itself
                    in_a_row = await let_others_run(core, op, in_a_row)
            else:
                in_a_row = 0
                woken = reading.wait(op)
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
                        reading.ring(NO_CHECK)
    finally:
        del op  # the exception keeps this frame


async def let_others_run(core: Core, op: Operation, in_a_row: int) -> int:
    """A read follows at once on *in_a_row* others: let the loop run. Returns: how many reads are in a row now."""
    if in_a_row == MANY_READS:
        core.finder.endless_reads(op)
    await asyncio.sleep(0)
    return in_a_row + 1


async def read_condition(op: ConditionWait) -> Any:
    """Await what the condition of *op* returns. Returns: the value that is waited for, or None."""
    try:
        value, op.first, op.value = op.first, None, None
        if value is None:
            value = op.condition()
        if is_awaitable(value):
            value = await (value if op.hand_back is None else _finish(op, value))
        return value if value is not None and op.note(value) else None
    finally:
        del op  # an exception keeps this frame


async def _finish(op: ConditionWait, read: Awaitable[Any]) -> Any:
    """Await *read* of a hand-out. If this task is cancelled meanwhile, the read goes on, and its value is put back."""
    task = asyncio.ensure_future(read)
    try:
        await asyncio.wait([task])  # and do not cancel it. A cancelled shield() reports its error, from 3.14 on.
        return task.result()
    except asyncio.CancelledError:
        if not task.cancelled():
            reading_of(op).go_on()
            owner_of(op).kept_reads.add(task)
            task.add_done_callback(partial(_put_back_later, op))
        raise
    finally:
        del op  # as above


def _put_back_later(op: ConditionWait, task: asyncio.Future[Any]) -> None:
    """The read that *op* has left is done: put back what it has taken (C3)."""
    core, keys = owner_of(op), reading_of(op).keys
    core.kept_reads.discard(task)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        core.loop.report(op, error, "a read whose task had left failed")
    if task.cancelled() or error is not None:
        core.checks.call_again(keys)
    elif op.note(task.result()) and op.hand_back is not None:
        put_back(op, op.hand_back, task.result(), keys)


def _note_context(_: object) -> None:
    """Do nothing. Observers get the context in which this was added: the task itself awaits another future."""


@final
class UntilEnded:
    """Cancels what its block awaits when *op* ends. The block is left then, without an exception."""

    __slots__ = ("_op",)

    def __init__(self, op: StreamWait) -> None:
        self._op: Final = op

    def __enter__(self) -> None:
        bell = self._op.bell
        bell.enter()
        if self._op.done():
            self._op.get_loop().call_soon(bell.interrupt)

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        return self._op.bell.leave() and isinstance(exc, asyncio.CancelledError)
