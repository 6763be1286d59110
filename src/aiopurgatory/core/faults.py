"""What hooks may raise and return, and how it is passed on."""

from __future__ import annotations

from types import CoroutineType, TracebackType
from typing import Any, Final, final

#: A constant of this module: compiled code looks up an imported name at each use.
COROUTINE: Final = CoroutineType


@final
class Failure:
    """An exception to raise, and the traceback it came with: each raise begins with that, so that it cannot grow."""

    __slots__ = ("exc", "traceback")

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc
        self.traceback: TracebackType | None = exc.__traceback__


def as_failure(exc: BaseException, hook: str) -> BaseException:
    """*exc* as it can be raised out of an await: a StopIteration would end the awaiting coroutine instead."""
    if not isinstance(exc, StopIteration):
        return exc
    failure = RuntimeError(f"{hook} raised StopIteration")
    failure.__cause__ = exc
    return failure


def require_error(exc: object) -> None:
    """Raises: TypeError: *exc* is nothing that an await can raise."""
    if not isinstance(exc, Exception) or isinstance(exc, StopIteration):
        raise TypeError(f"exc must be an instance of Exception other than StopIteration, got {exc!r}")


def require_plain(returned: Any, op: object, hook: str) -> None:
    """Raises: TypeError: *hook* is an ``async def``, and this its coroutine, which nobody would await."""
    if returned is not None and type(returned) is COROUTINE:
        returned.close()  # else Python warns of it, too
        raise TypeError(f"{type(op).__name__}.{hook} must be a plain function, not async def: hooks never wait")
