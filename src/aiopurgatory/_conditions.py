"""The operation behind wait_for(), whose condition is a function or an async def. Compiled: half of its cost."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, final

from .arguments import described, require_function
from .conditions import ConditionReads, is_awaitable
from .core.awaiter import Awaiter, begin_wait
from .core.core import Core
from .core.endings import put_back
from .core.kit import watched_at
from .core.operation import UNPARKED
from .core.standing import StandingWait


@final
class ConditionWait(StandingWait):
    """Waits until *condition* returns a value. It is called on each check.

    If its first call returns an awaitable, the waiting task reads instead: it awaits that, and then calls and awaits
    the condition again after each check.

    Args: put_back: makes it a hand-out: called with a value that its task does not receive.
    """

    __slots__ = ("_condition", "_put_back", "_value", "reads")

    def __init__(self, core: Core, condition: Any, timeout: object, put_back: Callable[[Any], object] | None) -> None:
        if not callable(condition):
            require_function("condition", condition)
        super().__init__(core, timeout, True, put_back is not None)  # keywords would take a dict
        self._condition: Callable[[], Any] = condition
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
        # Most are no awaitables: they need no interpreted call.
        if value is not True and hasattr(value, "__await__") and is_awaitable(value):
            self._decide(value)
            return False
        self._value = value
        if self._put_back is None:
            return bool(value) and self.force_complete()
        if self.force_complete():
            return True
        self._put_back(value)  # the condition itself has ended the wait, as by cancelling its task
        return False

    def on_complete(self) -> Any:
        if self.reads is not None:
            super().on_complete()
        return self._value

    def on_undelivered(self, result: Any) -> None:
        if self._put_back is not None and not self.expired:
            self._put_back(result)

    def park(self, keys: Any) -> Awaiter | None:
        """Watch it. Returns: the object to await until it is ready; None if it is, or if its task is to read."""
        self._core.park(self, keys)
        return begin_wait(self) if self.reads is None else None

    def begin_reads(self, first: Any = None) -> None:
        """From now on, a try tells the task to read. Args: first: what the condition's first call returned."""
        self.reads = ConditionReads(self._condition, first, self._put_back is not None)

    def end_reads(self, reads: ConditionReads) -> None:
        """The task has left. Put back what it did not receive, if a read has found a value after the end of this."""
        self.cancel()
        reads.close()
        value = reads.undelivered
        if self._put_back is not None and value is not None:
            put_back(self, self._put_back, value)

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
