"""The conditions of wait_for(): what counts as found, the reads of an async def, and the end without a value."""

from __future__ import annotations

from asyncio import isfuture
from collections.abc import Callable, Coroutine
from typing import Any, final

from .arguments import described
from .core.standing import StandingWait
from .errors import DeadlineError
from .waits import ReadPauses


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
