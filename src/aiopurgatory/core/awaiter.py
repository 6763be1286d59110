"""The operation as a future, and everything that waits for one."""

from __future__ import annotations

from asyncio.exceptions import CancelledError, InvalidStateError
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, cast, final

from mypy_extensions import mypyc_attr

from ..arguments import described, require_error
from .endings import Failure, cancel, check_thread, fail, handle_undelivered, publish_completed, unlink
from .operation import CANCELLED, COMPLETED, PENDING, Awaiters, Operation, Owner


@final
class Awaiter(Awaiters):
    """One awaiting task, or one callback to be called when the operation is done.

    asyncio waits for any object that follows the protocol of ``asyncio.isfuture``. A coroutine yields it; asyncio sees
    its ``_asyncio_future_blocking``, and calls add_done_callback(). This object holds that callback and little else.
    It is smaller than an ``asyncio.Future``, and ``task.cancel()`` calls cancel() here. That cancels the operation at
    once and takes it out of all lists, so an operation is never pending after its awaiter is gone.

    The awaiters of one operation form a chain. The operation knows the first one, the head, which keeps the chain's
    end and its count.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_head", "_is_task", "_last", "_next", "_op")

    def __init__(self, op: Operation, is_task: bool) -> None:
        self.waiting = 0
        self.has_left = False
        self.keys = ()
        self.context = None
        self._op = op
        self._is_task = is_task
        self._asyncio_future_blocking = is_task
        self._callback: Callable[[Any], object] | None = None
        self._next: Awaiter | None = None
        self._last: Awaiter | None = None  # of a head with others behind it: the last of them
        head: Awaiter | None = op._op_result
        self._head: Awaiter | None = head  # None: itself
        if head is None:
            head = self
            op._op_result = self
        else:
            last = head._last or head
            last._next = head._last = self
        head.waiting += 1

    def __repr__(self) -> str:
        return f"<Awaiter of {described(self._op)}>"

    # for the task

    def __await__(self) -> Any:
        """Suspend the task once: call block() before. It needs no frame, as a generator would."""
        return iter((self,))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # isinstance() must see a future: anyio does not cancel a task if its future is done in this iteration.
        return type(require_owner(self._op).loop.done)

    def get_loop(self) -> Any:
        owner = self._op._op_owner
        assert owner is not None  # only a watched operation has awaiters
        return owner.loop.running

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._callback = callback
        self.context = context

    def block(self) -> bool:
        """Prepare to be awaited once more. Returns: False if the operation is ready."""
        self._asyncio_future_blocking = True
        return not self._op._op_ready

    def cancel(self, msg: Any = None) -> bool:
        return cancel(self._op, msg)

    def done(self) -> bool:
        return self._op._op_ready

    def cancelled(self) -> bool:
        return self._op._op_state == CANCELLED

    # for the operation

    def wake_all(self) -> None:
        """The operation has ended: resume the tasks and call the callbacks, in the order in which they came."""
        self._last = None
        owner = self._op._op_owner
        awaiter: Awaiter | None = self
        while awaiter is not None:
            after = awaiter._next
            awaiter._next = None
            callback = awaiter._callback
            if callback is not None and owner is not None:
                awaiter._callback = None
                # A task checks the future it is woken with for an exception, which is quickest with a real one. One
                # finished future serves all tasks: they take their result from the operation.
                owner.loop.call_soon(callback, owner.loop.done if awaiter._is_task else self._op, awaiter.context)
            awaiter = after

    # leaving

    def leave(self) -> None:
        """The task was cancelled after the operation had ended, or its coroutine was discarded."""
        self._callback = self.context = None
        head = self._head or self
        head.has_left = True
        head.waiting -= 1
        if head.waiting == 0 and self._op._op_ready:
            handle_undelivered(self._op, head.keys)

    def remove(self, callback: Callable[[Any], object]) -> int:
        """Remove *callback* from the chain that begins here. Returns: how often it was there."""
        found = 0
        kept = self
        awaiter: Awaiter | None = self
        while awaiter is not None:
            if not awaiter._is_task and awaiter._callback == callback:
                awaiter._callback = None  # its context stays: observers get the first awaiter's
                found += 1
                if awaiter is not self:  # the others refer to the head, so that one stays
                    kept._next = awaiter._next
            else:
                kept = awaiter
            awaiter = awaiter._next
        self._last = None if kept is self else kept
        self.waiting -= found
        return found


def begin_wait(op: Operation) -> Awaiter | None:
    """Return the object to yield until *op* is ready; None if it is. Raises: RuntimeError: it never will be."""
    if op._op_ready:
        return None
    if op._op_owner is None:
        require_owner(op)
    return Awaiter(op, True)


def take(op: Operation | None) -> Any:
    """Return the result of the ready *op*, or raise its failure."""
    assert op is not None  # None only at the end
    if op._op_state == CANCELLED:
        raise cancelled_error(op)
    if not op._op_raises:
        op._op_retrieved = True
        return op._op_result
    # The exception keeps this frame, and the operation keeps the exception: the frame must keep neither, or all three
    # wait for the gc. (None, not del: mypyc 2.4 starts a parameter that is deleted somewhere as unset.)
    failure: BaseException | None = retrieve_failure(op)
    op = None
    try:
        raise cast(BaseException, failure)
    finally:
        failure = None


def retrieve_failure(op: Operation) -> BaseException:
    """Return the exception of the ready *op* with its original traceback. Counts as retrieving it."""
    op._op_retrieved = True
    failure: Failure = op._op_result
    return failure.exc.with_traceback(failure.traceback)


@mypyc_attr(allow_interpreted_subclasses=True)
class AwaitableOperation(Operation):
    """An operation that follows asyncio's future protocol; see DelayedOperation.

    Methods that ``asyncio.Future`` also has behave as CPython's documentation says there.
    """

    __slots__ = ()

    def force_complete(self) -> bool:
        """End it as COMPLETED and run on_complete().

        Returns: True for the one call that ended it, False for all others.
        Raises: RuntimeError: called from another thread. That is not noticed while try_complete() runs.
        Cost: O(1), and O(1) per key.
        """
        # Invariants: I5, I6, I15.
        if self._op_state != PENDING:
            return False
        if not self._op_trying:
            check_thread(self)
        unlink(self, COMPLETED)
        publish_completed(self, COMPLETED)
        return True

    def fail(self, exc: Exception) -> bool:
        """End it as FAILED: awaiting tasks get *exc*.

        Returns: True if this call ended it.

        Raises:
            TypeError: *exc* is not an instance of Exception, or is a StopIteration.
            RuntimeError: called from another thread.
        """
        require_error(exc)
        if self._op_state != PENDING:
            return False
        check_thread(self)
        fail(self, exc)
        return True

    def cancel(self, msg: Any = None) -> bool:
        """End it as CANCELLED and remove it from every key at once: awaiting tasks get CancelledError(*msg*).

        Returns: True if this call ended it.
        Raises: RuntimeError: called from another thread.
        """
        return cancel(self, msg)

    @property
    def _asyncio_future_blocking(self) -> bool:
        """Makes ``asyncio.isfuture()`` true. An awaiting task sets it on an Awaiter, never on the operation."""
        return False

    def result(self) -> Any:
        """Return the result.

        Raises: as an await does; asyncio.InvalidStateError while it is pending.
        """
        self._check_ready()
        return take(self)

    def exception(self) -> BaseException | None:
        """Return the exception that an await would raise; None if it would return a result.

        Raises: asyncio.CancelledError: it was cancelled; asyncio.InvalidStateError while it is pending.
        """
        self._check_ready()
        if self._op_state == CANCELLED:
            raise cancelled_error(self)
        return retrieve_failure(self) if self._op_raises else None

    def add_done_callback(self, callback: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Call *callback* with the operation, on the next loop iteration after it has ended.

        A failure of an operation with callbacks is not reported to the loop's exception handler: the callbacks see it.

        Args: context: the contextvars context to call it in. None (default): a copy of the current one.
        Raises: RuntimeError: it was never watched.
        """
        owner = require_owner(self)
        if context is None:
            context = copy_context()
        if self._op_ready:
            self._op_retrieved = True
            owner.loop.call_soon(callback, self, context)
        else:
            Awaiter(self, False).add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        """Remove *callback*. Returns: how often it had been added."""
        head: Awaiter | None = None if self._op_ready else self._op_result
        return 0 if head is None else head.remove(callback)

    def get_loop(self) -> Any:
        """Return the event loop of the purgatory that watched it. Raises: RuntimeError: it was never watched."""
        return require_owner(self).loop.running

    def _make_cancelled_error(self) -> CancelledError:
        """For asyncio.gather()."""
        return cancelled_error(self)

    @property
    def _cancel_message(self) -> Any:
        """For asyncio.gather()."""
        return self._op_result if self._op_state == CANCELLED else None

    def _check_ready(self) -> None:
        if not self._op_ready:
            raise InvalidStateError(f"{described(self)} has no result yet")


def require_owner(op: Operation) -> Owner:
    """Return the core that *op* waits in. Raises: RuntimeError: there is none."""
    if op._op_owner is None:
        raise RuntimeError(f"{described(op)} was never watched and would never end; pass it to Purgatory.watch() first")
    return op._op_owner


def cancelled_error(op: Operation) -> CancelledError:
    """Return the exception that the cancelled *op* raises."""
    msg = op._op_result
    return CancelledError() if msg is None else CancelledError(msg)
