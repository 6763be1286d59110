"""The iterator behind Purgatory.follow(): the newest value of something that changes.

Not compiled: mypyc's coroutines pass exceptions on by throw() with three arguments, and Python 3.12 warns of that.
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, NoReturn, Self, SupportsFloat, TypeVar, final

from .arguments import described
from .core.awaiter import take
from .core.core import CLOSED
from .core.entry_points import EntryPoints, core_of
from .core.nanoseconds import timeout_seconds
from .core.stream_wait import StreamWait
from .errors import PurgatoryClosedError
from .lifecycle import Closing
from .waits import ReadPauses, let_others_run

R = TypeVar("R")


@final
@dataclass(eq=False, slots=True, weakref_slot=True)
class Following(Closing, Generic[R]):
    """The result of ``Purgatory.follow()``: an asynchronous iterator of values, for one task at a time.

    Its operation ends when it raises, its task is cancelled, or aclose() is called. After a ``break``, it ends on the
    next loop iteration, if nothing refers to this any more. After a cancellation, as by ``asyncio.timeout()``, it can
    be iterated further, from the last value on: nothing is lost.
    """

    _purgatory: EntryPoints
    _keys: tuple[Hashable, ...]
    _read: Callable[[Any], Awaitable[tuple[Any, R] | None]]
    _since: Any
    #: Seconds; inf: never.
    _idle: float
    _pauses: ReadPauses | None
    _timeout: SupportsFloat | None
    _is_over: bool = False
    _is_busy: bool = False
    #: By the purgatory's clock: when it ends, once it has begun; and when it is idle, if its task was cancelled.
    _ends_at: float | None = None
    _idle_at: float = inf
    #: Reads that followed at once on each other.
    _in_a_row: int = 0
    #: Never the other way round: the purgatory keeps the operation, and would keep this alive.
    _op: StreamWait | None = None

    def __repr__(self) -> str:
        state = "over" if self._is_over else "new" if self._op is None else "parked"
        return f"<Following {described(self._keys)} {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        op = self._op
        if op is None:
            op = self._park()
        if self._is_busy:
            raise RuntimeError("another task waits for the next value; call follow() once for each task")
        self._is_busy = True
        try:
            while True:
                if op.begin():
                    found: tuple[Any, R] | None = None
                    reading: Any = ...  # until it is called
                    try:
                        reading = self._read(self._since)
                        found = await reading
                        op.end(found is not None)
                        if self._pauses is not None:
                            self._pauses.clear()
                        if found is not None:
                            self._since, value = found
                            return value
                    except BaseException as exc:
                        error = self._failure(op, exc, reading, found)
                        try:
                            if error is exc:
                                raise
                            if error is not None:
                                raise error from None
                        finally:
                            del error  # it keeps this frame
                    if op.take_idle():
                        return None  # type: ignore[return-value]  # follow() says so
                    if op.bell.is_rung:  # perhaps by the read itself
                        self._in_a_row = await let_others_run(core_of(self._purgatory), op, self._in_a_row)
                else:
                    self._in_a_row = 0
                    woken = op.wait() if self._pauses is None else op.wait(self._pauses.seconds)
                    if woken is None:
                        self._end(op)
                    await woken
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self._leave(op)
            raise
        finally:
            self._is_busy = False
            del op  # the exception keeps this frame, and the operation keeps the exception

    async def aclose(self) -> None:
        """End the operation, and the iteration. A second call does nothing."""
        self._is_over = True
        if self._op is not None:
            self._op.cancel()
            self._op = None

    def __del__(self) -> None:
        op = getattr(self, "_op", None)
        if op is not None and not op.done():
            _cancel_soon(op)

    def _park(self) -> StreamWait:
        core, has_begun = core_of(self._purgatory), self._ends_at is not None
        if self._is_over or (has_begun and core.state == CLOSED):
            raise StopAsyncIteration
        now = core.loop.time()
        ends_at = now + timeout_seconds(self._timeout) if self._ends_at is None else self._ends_at
        op = StreamWait(core, max(ends_at - now, 0.0), self._idle, idle_at=self._idle_at)
        self._op = self._purgatory.watch(op, self._keys)
        self._ends_at = ends_at
        return op

    def _failure(self, op: StreamWait, exc: BaseException, reading: object, found: object) -> BaseException | None:
        """A read raised *exc*, or *found* no pair. Returns: the consumer's exception; None: the iteration goes on."""
        is_cancelled = op.bell.is_cancelled()
        if op.bell.leave():
            op.end(False)
            return None
        if is_cancelled or not isinstance(exc, Exception):
            self._leave(op)
            return CancelledError() if isinstance(exc, Exception) else exc  # its driver has made an error of that
        error = exc
        if found is not None:
            error = TypeError(f"read must return a pair (since, value), or None; it returned {described(found)}")
        elif isinstance(exc, StopAsyncIteration):  # it would end the consumer's loop, as if all was well
            error = RuntimeError("read raised StopAsyncIteration")
        elif self._pauses is not None and self._pauses.has_failed(op, exc):
            op.end(False)
            return None
        elif isinstance(exc, TypeError) and reading is not ... and not isinstance(reading, Awaitable):
            error = TypeError(f"read must be an async def, or return an awaitable; it returned {described(reading)}")
        self._is_over, self._op = True, None
        op.end(False)
        op.fail(error)
        return error

    def _end(self, op: StreamWait) -> NoReturn:
        """*op* has ended. Raises: StopAsyncIteration, or its failure."""
        is_left, self._is_over, self._op = self._is_over, True, None
        try:
            take(op)
        except PurgatoryClosedError:
            pass  # suppress() also looks into groups
        except CancelledError:
            if not is_left:
                raise
        finally:
            del op  # as above
        raise StopAsyncIteration

    def _leave(self, op: StreamWait) -> None:
        """Its task was cancelled, or is garbage."""
        op.bell.end(False)
        if self._op is not op or op.done():  # the next call raises its failure, or ends
            return
        self._op, self._idle_at = None, op.idle_at
        try:
            op.cancel()
        except RuntimeError:  # the garbage collector runs in another thread
            _cancel_soon(op)


def _cancel_soon(op: StreamWait) -> None:
    """Cancel *op* on the next loop iteration: the garbage collector may run in any thread and any statement."""
    with suppress(RuntimeError):  # the loop is closed
        op.get_loop().call_soon_threadsafe(op.cancel)
