"""The iterator behind Purgatory.follow(): the newest value of something that changes.

Not compiled: mypyc's coroutines pass exceptions on by throw() with three arguments, and Python 3.12 warns of that.
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from math import inf
from typing import Any, Generic, NoReturn, Self, TypeVar, final

from .arguments import described
from .core.awaiter import take
from .core.entry_points import EntryPoints, core_of
from .core.follower import Follower
from .errors import PurgatoryClosedError
from .lifecycle import Closing
from .waits import Retries

R = TypeVar("R")


@final
class Following(Closing, Generic[R]):
    """The result of ``Purgatory.follow()``: an asynchronous iterator of values, for one task at a time.

    Its operation ends when it raises, its task is cancelled, or aclose() is called. After a ``break``, it ends on the
    next loop iteration, if nothing refers to this any more. After a cancellation, as by ``asyncio.timeout()``, it can
    be iterated further, from the last value on: nothing is lost.
    """

    __slots__ = ("__weakref__", "_follower", "_idle", "_is_over", "_keys", "_purgatory", "_read", "_retries", "_since")

    def __init__(
        self,
        purgatory: EntryPoints,
        keys: tuple[Hashable, ...],
        read: Callable[[Any], Awaitable[tuple[Any, R] | None]],
        since: Any,
        idle: float | None,
        retries: Retries | None,
    ) -> None:
        self._purgatory, self._keys = purgatory, keys
        self._read, self._since = read, since
        self._idle = inf if idle is None else idle
        self._retries = retries
        self._is_over = False
        #: Never the other way round: the purgatory keeps the operation, and would keep this alive.
        self._follower: Follower | None = None

    def __repr__(self) -> str:
        state = "over" if self._is_over else "new" if self._follower is None else "parked"
        return f"<Following {described(self._keys)} {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        follower = self._follower
        if follower is None:
            follower = self._park()
        is_called = follower.enter()
        try:
            while True:
                if is_called:
                    found = reading = None
                    try:
                        reading = self._read(self._since)
                        found = await reading
                        follower.end(found is not None)
                        if self._retries is not None:
                            self._retries.clear()
                        if found is not None:
                            since, value = found
                            self._since = since
                            return value
                    except BaseException as exc:
                        error = self._failure(follower, exc, reading, found)
                        try:
                            if error is exc:
                                raise
                            if error is not None:
                                raise error from None
                        finally:
                            del error  # it keeps this frame
                    if follower.take_idle():
                        return None  # type: ignore[return-value]  # follow() says so
                else:
                    woken = follower.wait() if self._retries is None else follower.wait(self._retries.seconds)
                    if woken is None:
                        self._end(follower)
                    try:
                        await woken
                    except BaseException:
                        self._leave(follower)
                        raise
                is_called = follower.begin()
        finally:
            del follower  # the exception keeps this frame, and the operation keeps the exception

    async def aclose(self) -> None:
        """End the operation, and the iteration. A second call does nothing."""
        self._is_over = True
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def __del__(self) -> None:
        follower = getattr(self, "_follower", None)
        if follower is not None and not follower.done():
            _cancel_soon(follower)

    def _park(self) -> Follower:
        if self._is_over:
            raise StopAsyncIteration
        self._follower = self._purgatory.watch(Follower(core_of(self._purgatory), self._idle), self._keys)
        return self._follower

    def _failure(self, follower: Follower, exc: BaseException, reading: object, found: object) -> BaseException | None:
        """A read raised *exc*, or *found* no pair. Returns: the consumer's exception; None: the iteration goes on."""
        if follower.was_interrupted():
            follower.end(False)
            return None
        if not isinstance(exc, Exception):
            self._leave(follower)
            return exc
        error = exc
        if found is not None:
            error = TypeError(f"read must return a pair (since, value), or None; it returned {described(found)}")
        elif self._retries is not None and self._retries.has_failed(exc):
            follower.end(False)
            return None
        elif isinstance(exc, TypeError) and reading is not None and not isinstance(reading, Awaitable):
            error = TypeError(f"read must be an async def, or return an awaitable; it returned {described(reading)}")
        self._is_over, self._follower = True, None
        follower.end(False)
        follower.fail(error)
        return error

    def _end(self, follower: Follower) -> NoReturn:
        """*follower* has ended. Raises: StopAsyncIteration, or its failure."""
        is_left, self._is_over, self._follower = self._is_over, True, None
        try:
            take(follower)
        except PurgatoryClosedError:
            pass
        except CancelledError:
            if not is_left:
                raise
        finally:
            del follower  # as above
        raise StopAsyncIteration

    def _leave(self, follower: Follower) -> None:
        """Its task was cancelled, or is garbage."""
        self._follower = None
        try:
            follower.leave()
        except RuntimeError:  # the garbage collector runs in another thread
            _cancel_soon(follower)


def _cancel_soon(follower: Follower) -> None:
    """Cancel *follower* on the next loop iteration: the garbage collector may run in any thread and any statement."""
    with suppress(RuntimeError):  # the loop is closed
        follower.get_loop().call_soon_threadsafe(follower.cancel)
