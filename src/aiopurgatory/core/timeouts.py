"""The timeout of a block of code: an item of the timer that cancels its task. See Purgatory.timeout()."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Generator
from math import inf
from types import TracebackType
from typing import Any, Final, Self, SupportsFloat, final

from mypy_extensions import u8

from ..errors import PurgatoryClosedError
from ..timer.ring import deadline_of, set_deadline
from .core import NEW, OPEN, Core
from .deadlines import TimedBlock
from .nanoseconds import ceil_ns, seconds_or_inf

# The states of a timeout. FIRING and CLOSING: its task is cancelled, and has not left the block yet.
CREATED: Final = 0
ACTIVE: Final = 1
FIRING: Final = 2
FIRED: Final = 3
FINISHED: Final = 4
CLOSING: Final = 5
#: Between ``__aenter__()`` and the await of its result.
ENTERING: Final = 6
NAMES: Final = ("created", "active", "expiring", "expired", "finished", "closing", "entering")


@final
class Timeout(TimedBlock):
    """The result of ``Purgatory.timeout()`` and ``timeout_at()``. It behaves as ``asyncio.Timeout`` does."""

    __slots__ = ("_cancelling", "_core", "_now", "_state", "_task", "_when")

    def __init__(self, core: Core, seconds: Any, is_absolute: bool) -> None:
        super().__init__()
        self._core: Final = core
        number = seconds_or_inf("when" if is_absolute else "timeout", seconds)
        if core.state == NEW:  # there is no clock yet to count from
            raise core.refusal()
        #: The time at which the deadline was set, and the deadline, by the purgatory's clock.
        self._now = core.loop.time()
        self._when = number if is_absolute else self._now + number
        set_delay(self, number - self._now if is_absolute else number)
        self._state: u8 = CREATED
        self._task: Any = None
        self._cancelling = 0

    def __repr__(self) -> str:
        info = f" when={None if self._when == inf else round(self._when, 3)}" if self._state == ACTIVE else ""
        return f"<Timeout [{NAMES[self._state]}]{info}>"

    def when(self) -> float | None:
        """Return the deadline, by the purgatory's clock; None if there is none."""
        return None if self._when == inf else self._when

    def expired(self) -> bool:
        """Return True if the deadline came before the block was left."""
        return self._state == FIRING or self._state == FIRED

    def reschedule(self, when: SupportsFloat | None) -> None:
        """Move the deadline. Cost: O(levels).

        Args: when: the new deadline, by the purgatory's clock, as ``when()``. None: no deadline.

        Raises:
            RuntimeError: the block was not entered yet, or its deadline has come, or it was left.
            PurgatoryClosedError: the purgatory was closed.
        """
        if self._state != ACTIVE:
            if self._state == CREATED:
                raise RuntimeError("Timeout has not been entered")
            raise RuntimeError(f"Cannot change state of {NAMES[self._state]} Timeout")
        seconds = seconds_or_inf("when", when)
        if self._core.state != OPEN:
            raise self._core.refusal()
        self._core.loop.check_thread()
        self._core.deadlines.disarm_block(self)
        self._now = self._core.loop.time()
        self._when = seconds
        set_delay(self, seconds - self._now)
        arm(self)

    def fire(self) -> None:
        """Cancel the task: the deadline has come."""
        self._state = FIRING
        self._task.cancel()

    def close(self) -> None:
        """Cancel the task: the purgatory closes, so the deadline would never come.

        Not at once: its wait may have ended, as a follow() does, or it closes the purgatory itself. If it leaves the
        block now, no cancellation is wanted. Before Python 3.13, uncancel() takes back none of a running task.
        """
        # Invariants: I13.
        self._core.loop.call_soon(close_if_active, self)

    def __aenter__(self) -> Self:
        if self._state != CREATED:
            raise RuntimeError("Timeout has already been entered")
        self._state = ENTERING
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        # Entering waits for nothing, and a coroutine would cost half as much again. Only ``async with`` gets this far.
        if self._state != ENTERING:
            raise TypeError("a timeout cannot be awaited; use 'async with'")
        self._state = CREATED  # so it stays if it cannot be entered
        enter(self)
        if self._task is None:
            yield  # never: it makes this a generator. As it never suspends, nothing can be thrown into it.
        return self

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> Any:
        """Leave the block: no coroutine, since there is nothing to wait for."""
        if self._state == ACTIVE:
            self._state = FINISHED
            self._core.deadlines.disarm_block(self)
            self._task = None
            return self._core.loop.done
        return leave_cancelled(self, exc_type, exc)


def enter(timeout: Timeout) -> None:
    core = timeout._core
    if core.state != OPEN or not core.loop.is_here():
        raise core.refusal()
    # Without the loop, asyncio would look it up: a system call on Python 3.11, a fifth of the whole block.
    task = core.loop.current_task(core.loop.running)
    if task is None:
        raise RuntimeError("Timeout should be used inside a task")
    timeout._cancelling = task.cancelling()
    timeout._task = task
    timeout._state = ACTIVE
    arm(timeout)


def set_delay(timeout: Timeout, delay: float) -> None:
    """Set the timer's deadline to *delay* seconds from the timeout's ``_now``; 0: it is in the past."""
    if timeout._when != inf:
        set_deadline(timeout, 0 if delay <= 0.0 else ceil_ns(timeout._now) + ceil_ns(delay))


def arm(timeout: Timeout) -> None:
    if timeout._when == inf:
        return
    if deadline_of(timeout) == 0:
        timeout._core.loop.call_soon(fire_if_due, timeout)
        return
    timeout._core.deadlines.arm_block(timeout, timeout._now)


def fire_if_due(timeout: Timeout) -> None:
    """Fire *timeout*, which was set to the past, unless it has been moved since."""
    if timeout._state == ACTIVE and timeout._when != inf and deadline_of(timeout) == 0:
        timeout.fire()


def close_if_active(timeout: Timeout) -> None:
    """Close *timeout*, unless its task has left the block."""
    if timeout._state == ACTIVE:
        timeout._core.deadlines.disarm_block(timeout)  # the purgatory may be open again
        timeout._state = CLOSING
        timeout._task.cancel()


def leave_cancelled(timeout: Timeout, exc_type: type[BaseException] | None, exc: BaseException | None) -> Any:
    """Leave the block after its task was cancelled here. Raises: TimeoutError, or PurgatoryClosedError."""
    is_closing = timeout._state == CLOSING
    timeout._state = FINISHED if is_closing else FIRED
    task, timeout._task = timeout._task, None
    if task.uncancel() <= timeout._cancelling and exc_type is not None and exc is not None:
        # There was no other request to cancel the task.
        name = timeout._core.loop.name
        error: Exception = PurgatoryClosedError(f"purgatory {name!r} was closed") if is_closing else TimeoutError()
        if issubclass(exc_type, CancelledError):
            error.__cause__ = exc  # compiled, a `raise ... from` sets none (mypyc 2.4)
            raise error
        insert_error(exc, error)
        if isinstance(exc, ExceptionGroup):
            for one in exc.exceptions:
                insert_error(one, type(error)(*error.args))
    return timeout._core.loop.done


def insert_error(exc: BaseException, error: Exception) -> None:
    """Put *error* between *exc* and the cancellation during which it was raised, as asyncio does from 3.13 on."""
    while exc.__context__ is not None:
        if isinstance(exc.__context__, CancelledError):
            error.__context__ = error.__cause__ = exc.__context__
            exc.__context__ = error
            break
        exc = exc.__context__
