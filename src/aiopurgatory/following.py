"""The iterator behind Purgatory.follow(): the newest value of something that changes. Compiled for a quick delivery."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from math import inf
from types import CoroutineType, TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, final

from .core.awaiter import take
from .core.follower import Follower
from .core.purgatory import SyncPurgatory
from .errors import PurgatoryClosedError
from .waits import Retries

R = TypeVar("R")


@final
class Following(Generic[R]):
    """The result of ``Purgatory.follow()``: an asynchronous iterator of values, for one task at a time.

    Its operation ends when it raises, when its task is cancelled, when aclose() is called, or when nothing refers to it
    any more, as after a ``break``: then, on the next loop iteration. After a cancellation, as by ``asyncio.timeout()``,
    it can be iterated further, from the last value on: nothing is lost.
    """

    __slots__ = ("_follower", "_idle", "_is_over", "_keys", "_purgatory", "_read", "_retries", "_since")

    def __init__(
        self,
        purgatory: SyncPurgatory,
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
        return f"<Following {self._keys!r} {state}>"

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
                    found: Any = None  # compiled code would check other types, with messages of its own
                    try:
                        reading: Any = self._read(self._since)
                        if type(reading) is not CoroutineType and not isinstance(reading, Awaitable):
                            raise TypeError(
                                f"read must be an async def, or return an awaitable; it returned {reading!r}"
                            )
                        found = await reading
                        follower.end(found is not None)
                        if self._retries is not None:
                            self._retries.clear()
                        if found is not None:
                            if not isinstance(found, tuple) or len(found) != 2:
                                raise TypeError(
                                    f"read must return a pair (since, value), or None; it returned {found!r}"
                                )
                            pair: tuple[Any, R] = found
                            self._since = pair[0]
                            return pair[1]
                    except BaseException as exc:
                        if not self._goes_on(follower, exc, found):
                            raise
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        follower = getattr(self, "_follower", None)
        if follower is not None and not follower.done():
            _cancel_soon(follower)

    def _park(self) -> Follower:
        if self._is_over:
            raise StopAsyncIteration
        self._follower = self._purgatory.watch(Follower(self._idle), self._keys)
        return self._follower

    def _goes_on(self, follower: Follower, exc: BaseException, found: object) -> bool:
        """A read raised *exc*, or *found* no pair. Returns: does the iteration go on?"""
        if not follower.was_interrupted():
            if not isinstance(exc, Exception):
                self._leave(follower)
                return False
            if found is not None or self._retries is None or not self._retries.has_failed(exc):
                self._is_over, self._follower = True, None
                follower.end(False)
                follower.fail(exc)
                return False
        follower.end(False)
        return True

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
