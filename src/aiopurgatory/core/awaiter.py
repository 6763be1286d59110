"""What ``await operation`` waits on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, final

from .endings import CANCELLED, cancel, give_back, take_result

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from .operation import Operation


def wait(op: Operation | None) -> Generator[Awaiter, None, object]:
    """``await op``. A generator, because a compiled one can end without a traceback, which costs more than all else."""
    assert op is not None  # it is, until the end
    awaiter = None if op._op_ready else Awaiter(op)
    if awaiter is not None:
        try:
            while not is_ready(op):
                awaiter._asyncio_future_blocking = True
                yield awaiter
        except BaseException:
            awaiter.leave()
            raise
    op._op_awaiters = None  # taken: who leaves from now on leaves nothing behind
    if not op._op_raises:
        return take_result(op)
    # What is raised keeps this frame, and the operation keeps what is raised: the frame must keep neither, or all three
    # wait for the gc. (None, not del: mypyc 2.4 starts a parameter that is deleted somewhere as unset.)
    op._op_retrieved = True
    failure: object = op._op_result
    op = awaiter = None
    try:
        raise cast(BaseException, failure)
    finally:
        failure = None


def is_ready(op: Operation) -> bool:
    return op._op_ready


@final
class Awaiter:
    """One awaiting task: the future that it is told to wait for.

    asyncio waits for anything that follows the protocol of ``asyncio.isfuture``: it takes what a coroutine yields,
    sees ``_asyncio_future_blocking``, and calls add_done_callback(). This object holds that callback and little else.
    Against an ``asyncio.Future`` it is small; and ``task.cancel()`` arrives here, in the call, so that from that
    instant the operation is cancelled and out of all lists, and there is never an operation that looks pending but
    whose awaiter is gone.

    The awaiters of one operation are a chain; the first one, ``op._op_awaiters``, keeps its end and its count until
    somebody has taken the result.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_last", "_next", "_op", "_waiting")

    def __init__(self, op: Operation) -> None:
        self._op = op
        self._asyncio_future_blocking = False
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._next: Awaiter | None = None
        self._last: Awaiter | None = None  # of a head with others behind it: the last of them
        self._waiting = 0  # of a head: how many of the chain have neither taken the result nor left
        head = op._op_awaiters
        if head is None:
            op._op_awaiters = head = self
        else:
            last = head._last or head
            last._next = head._last = self
        head._waiting += 1

    def __repr__(self) -> str:
        return f"<Awaiter of {self._op!r}>"

    # what the task sees

    @property
    def _loop(self) -> object:
        owner = self._op._op_owner
        return None if owner is None else owner._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._callback = callback
        self._context = context

    def cancel(self, msg: object = None) -> bool:
        return cancel(self._op, msg)

    def done(self) -> bool:
        return self._op._op_ready

    def cancelled(self) -> bool:
        return self._op._op_outcome is CANCELLED

    # what the operation and wait() see

    def wake_all(self) -> None:
        """The operation has ended: resume the tasks, in the order in which they came."""
        self._last = None
        awaiter: Awaiter | None = self
        while awaiter is not None:
            after = awaiter._next
            awaiter._next = None
            awaiter._wake()
            awaiter = after

    def all_left(self) -> bool:
        return self._waiting == 0

    def leave(self) -> None:
        """The task was cancelled after the operation had ended, or its coroutine was thrown away."""
        self._callback = self._context = None
        head = self._op._op_awaiters
        if head is not None:
            head._waiting -= 1
            if head._waiting == 0 and self._op._op_ready:
                give_back(self._op)

    def _wake(self) -> None:
        callback, context, owner = self._callback, self._context, self._op._op_owner
        if callback is None or owner is None:
            return
        self._callback = self._context = None
        try:
            # The task looks at the future it is woken with for an exception, and that is quickest with a real one. One
            # that is done serves for all: what they get, they get from wait().
            owner._call_soon(callback, owner._done, context=context)
        except RuntimeError:
            if not owner._loop.is_closed():  # else its tasks will never run again
                raise
