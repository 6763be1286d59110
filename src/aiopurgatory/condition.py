"""The operation behind wait_for(): what its condition returns, and which of that ends the wait. Compiled."""

from __future__ import annotations

from asyncio import isfuture
from collections.abc import Callable, Coroutine
from typing import Any, Final, final

from .arguments import described, require_function
from .core.awaited import AwaitedWait, reading_of, ring
from .core.awaiter import Awaiter, begin_wait
from .core.core import Core
from .core.endings import put_back
from .core.operation import COMPLETED, UNPARKED
from .errors import DeadlineError


@final
class ConditionWait(AwaitedWait):
    """Waits until *condition* returns a value. It is called on each check.

    If its first call returns an awaitable, the waiting task reads instead: it awaits that, and then calls and awaits
    the condition again after each check.

    Args: hand_back: makes it a hand-out: called with a value that its task does not receive.
    """

    __slots__ = ("_core", "condition", "first", "hand_back", "is_found", "is_reading", "value")

    def __init__(self, core: Core, condition: Any, timeout: object, hand_back: Callable[[Any], object] | None) -> None:
        if not callable(condition):
            require_function("condition", condition)
        super().__init__(timeout, hand_back is not None)
        self._core = core
        self.condition: Callable[[], Any] = condition
        self.hand_back: Final = hand_back
        #: What the condition returned last; and whether that is what is waited for.
        self.value: Any = None
        self.is_found = False
        #: Whether the task reads; and what the first call returned, until that is awaited.
        self.is_reading = False
        self.first: Any = None

    def try_complete(self) -> bool:
        if self.is_reading:
            ring(self)
            return False
        if not self._look():
            return False
        if self.force_complete():
            return True
        if self.hand_back is not None:
            self.hand_back(self.value)  # the condition itself has ended the wait, as by cancelling its task
        return False

    def on_complete(self) -> Any:
        if self.is_reading:
            super().on_complete()
        elif self._op_state == COMPLETED and not self._op_trying:  # by complete_for_key()
            self._look()
        return self.value

    def on_undelivered(self, result: Any) -> None:
        if self.hand_back is not None and self.is_found:
            self.hand_back(result)

    def park(self, keys: Any) -> Awaiter | None:
        """Watch it. Returns: the object to await until it is ready; None if it is, or if its task is to read."""
        self._core.park(self, keys, at_once=True)
        return None if self.is_reading else begin_wait(self)

    def read(self) -> None:
        """From now on, a try tells the task to read."""
        self.is_reading = True
        self.begin_reads(self._core, True)

    def note(self, value: Any) -> bool:
        """Note what a look has found. Returns: whether it ends the wait.

        A hand-out takes the value from somewhere, so 0, "" and {} are values. To count them as false would lose
        them.
        """
        self.value = value
        self.is_found = value is not None and value is not False and (self.hand_back is not None or bool(value))
        return self.is_found

    def end_reads(self) -> None:
        """The task has left. Put back what it did not receive, if a read has found a value after the end of this."""
        self.cancel()
        first, self.first = self.first, None
        if isinstance(first, Coroutine):
            first.close()  # watch() was refused; else Python warns of it
        elif isfuture(first):
            first.cancel()
        if self.is_found and self.hand_back is not None:
            put_back(self, self.hand_back, self.value, reading_of(self).keys)

    def without_value(self, default: Any, timeout: Any, error: Exception | None) -> Any:
        """The wait has ended without a value. Returns: *default*. Raises: DeadlineError *from error*: there is none."""
        if default is not ...:
            return default
        value, hint, when = self.value, "", f"after {timeout} s"
        if value is not None and value is not False:
            hint = f"; it returned {described(value)}, which counts as false; if that is a result, return it in a tuple"
        if self._op_state == COMPLETED:
            when = "when complete_for_key() ended it"
        elif timeout is None:
            when = "when expire_all() ended it"
        elif not isinstance(timeout, (int, float)):
            when = "at its deadline"
        elif timeout <= 0:
            when = f"at its only call: there was no time to wait, {timeout} s"
        failure = DeadlineError(f"the condition was still false {when}{hint}")
        failure.__cause__ = error  # compiled code forgets "from error"
        try:
            raise failure
        finally:
            del failure  # it keeps this frame

    def _look(self) -> bool:
        """Call the condition. Returns: whether that ends the wait."""
        value = self.condition()
        if value is None or value is False:
            return False
        # Most are no awaitables: they need no interpreted call.
        if value is not True and hasattr(value, "__await__") and is_awaitable(value):
            self._decide(value)
            return False
        self.value = value
        self.is_found = self.hand_back is not None or bool(value)
        return self.is_found

    def _decide(self, value: Any) -> None:
        """The condition has returned the awaitable *value*. Raises: TypeError: earlier, it returned something else."""
        if self._op_watched_at == UNPARKED:  # its first call
            self.first = value
            self.read()
            return
        if isinstance(value, Coroutine):
            value.close()  # else Python also warns of it
        elif self.hand_back is not None:
            self.hand_back(value)
        raise TypeError(
            f"condition must return an awaitable at its first call or never, got {described(value)} later; "
            "make it an async def, or return a result in a tuple"
        )


def is_awaitable(value: object) -> bool:
    """Return whether *value* can be awaited."""
    # The class decides, but it takes long to say no. So the value is asked first.
    return hasattr(value, "__await__") and hasattr(type(value), "__await__")
