"""The operation behind wait_for(), whose condition is a function or an async def."""

from __future__ import annotations

from asyncio import isfuture
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

from .arguments import described
from .core.core import Core, owner_of
from .core.endings import report
from .core.kit import watched_at
from .core.operation import UNPARKED
from .core.standing import StandingWait
from .errors import DeadlineError
from .operation import DelayedOperation
from .waits import ReadPauses

R = TypeVar("R")


def is_awaitable(value: object) -> bool:
    """Return whether *value* can be awaited."""
    # The class decides, but it takes long to say no. So the value is asked first.
    return hasattr(value, "__await__") and hasattr(type(value), "__await__")


def is_found(value: object, hands_out: bool) -> bool:
    """Return whether *value*, of a condition, is what is waited for.

    Args: hands_out: the condition takes the value from somewhere, so 0, "" and {} are values, too. To count them as
        false would lose them.
    """
    return value is not None and value is not False and (hands_out or bool(value))


def at_deadline(default: Any, when: str, value: object, pauses: ReadPauses | None) -> Any:
    """Return *default*.

    Args: when: how long the condition was false. value: what it returned last. pauses: keep its last error.
    Raises: DeadlineError: there is no default.
    """
    if default is not ...:
        return default
    hint = ""
    if value is not None and value is not False:
        hint = f"; it returned {described(value)}, which counts as false; if that is a result, return it in a tuple"
    raise DeadlineError(f"the condition was {when}{hint}") from (None if pauses is None else pauses.error)


class ConditionWait(StandingWait, DelayedOperation[R]):
    """Waits until *condition* returns a value. It is called on each check.

    If its first call returns an awaitable, the waiting task reads instead: it awaits that, and then calls and awaits
    the condition again after each check.

    Args: put_back: makes it a hand-out: called with a value that its task does not receive.
    """

    __slots__ = ("_condition", "_put_back", "_value", "reads")

    def __init__(
        self, core: Core, condition: Callable[[], Any], timeout: float | None, put_back: Callable[[Any], object] | None
    ) -> None:
        super().__init__(core, timeout, True, put_back is not None)  # keywords would take a dict
        self._condition = condition
        self._put_back = put_back
        #: The result; at the deadline, the last data that counted as false.
        self._value: Any = None
        #: Set once the condition is known to be awaited.
        self.reads: ConditionReads | None = None

    def try_complete(self) -> bool:
        if self.reads is not None:
            return super().try_complete()
        value = self._condition()
        if value is None or value is False:
            return False
        if is_awaitable(value):
            self._decide(value)
            return False
        self._value = value
        if self._put_back is None:
            return bool(value) and self.force_complete()
        if self.force_complete():
            return True
        self._put_back(value)  # the condition itself has ended the wait, as by cancelling its task
        return False

    def on_complete(self) -> R:
        if self.reads is not None:
            super().on_complete()
        value: R = self._value
        return value

    def on_undelivered(self, result: R) -> None:
        if self._put_back is not None and not self.expired:
            self._put_back(result)

    def begin_reads(self, first: Any = None) -> None:
        """From now on, a try tells the task to read. Args: first: what the condition's first call returned."""
        self.reads = ConditionReads(self._condition, first, self._put_back is not None)

    def end_reads(self, reads: ConditionReads) -> None:
        """The task has left. Put back what it did not receive, if a read has found a value after the end of this."""
        self.cancel()
        reads.close()
        value = reads.undelivered
        if self._put_back is None or value is None:
            return
        owner_of(self).undelivered()
        try:
            self._put_back(value)
        except Exception as exc:
            report(self, exc, "on_undelivered raised")

    def _decide(self, value: Any) -> None:
        """The condition has returned the awaitable *value*. Raises: TypeError: earlier, it returned something else."""
        if watched_at(self) == UNPARKED:  # its first call
            self.begin_reads(value)
            return
        if isinstance(value, Coroutine):
            value.close()  # else Python warns of it, too
        elif self._put_back is not None:
            self._put_back(value)
        raise TypeError(
            f"condition must return an awaitable at its first call or never, got {described(value)} later; "
            "make it an async def, or return a result in a tuple"
        )


@final
class ConditionReads:
    """The reads of an awaited condition.

    Args: first: what its first call returned; None: it was not called yet. hands_out: see is_found().
    """

    __slots__ = ("_condition", "_first", "_hands_out", "undelivered", "value")

    def __init__(self, condition: Callable[[], Any], first: Any, hands_out: bool) -> None:
        self._condition = condition
        self._first = first
        self._hands_out = hands_out
        #: The result of the last read; and the value that it found, until the task receives it.
        self.value: Any = None
        self.undelivered: Any = None

    async def read(self, _: StandingWait) -> Any:
        """Call the condition, and await what it returns. Returns: the value that is waited for, or None."""
        del _  # an exception keeps this frame
        self.value = None
        value, self._first = self._first, None
        if value is None:
            value = self._condition()
        if is_awaitable(value):
            value = await value
        self.value = value
        if not is_found(value, self._hands_out):
            return None
        self.undelivered = value
        return value

    def close(self) -> None:
        """Close what the first call returned, if watch() was refused after it."""
        first, self._first = self._first, None
        if first is None:
            return
        if isinstance(first, Coroutine):
            first.close()  # else Python warns of it
        elif isfuture(first):
            first.cancel()
