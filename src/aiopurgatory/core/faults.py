"""Faults of hooks: wrong exceptions and results, and how failures are kept."""

from __future__ import annotations

from types import CoroutineType, TracebackType
from typing import Any, Final, final

#: A constant of this module: compiled code looks up an imported name at each use.
COROUTINE: Final = CoroutineType


@final
class Failure:
    """An exception and its original traceback. Each raise starts from that, so the traceback cannot grow."""

    __slots__ = ("exc", "traceback")

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc
        self.traceback: TracebackType | None = exc.__traceback__


def as_failure(exc: BaseException, hook: str) -> BaseException:
    """Return *exc* in a form that an await can raise: a StopIteration would end the awaiting coroutine instead."""
    if not isinstance(exc, StopIteration):
        return exc
    failure = RuntimeError(f"{hook} raised StopIteration")
    failure.__cause__ = exc
    return failure


def require_plain(returned: Any, op: object, hook: str) -> None:
    """Raises: TypeError: *hook* is an ``async def``: *returned* is its coroutine, which would never be awaited."""
    if returned is not None and type(returned) is COROUTINE:
        returned.close()  # else Python warns of it, too
        raise TypeError(f"{type(op).__name__}.{hook} must be a plain function, not async def: hooks never wait")
