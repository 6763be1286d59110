"""How an operation ends.

Every ending goes through two steps. unlink() is the one change from pending to ended (I5), and takes the operation out
of the timer and of its keys (I6). publish() makes the result known. User code runs only between the two or after them,
when all structures are consistent (I7).
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Final, final

from mypy_extensions import u8

from .operation import CANCELLED, COROUTINE, DUE, EXPIRED, FAILED, OUTCOMES, PENDING, UNPARKED, Awaiters, Operation

DEFAULT_ON_END: Final[Any] = Operation.on_end


@final
class Failure:
    """An exception and its original traceback. Each raise starts from that, so the traceback cannot grow."""

    __slots__ = ("exc", "traceback")

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc
        self.traceback: TracebackType | None = exc.__traceback__


def unlink(op: Operation, outcome: u8) -> None:
    """Mark the pending *op* as ended, and take it out of the timer and of its keys."""
    op._op_state = outcome  # I5: from here on, every other ending finds it ended
    owner = op._op_owner
    if owner is not None and op._op_watched_at != UNPARKED:
        owner.detach(op)


def publish(op: Operation, outcome: u8, result: object, raises: bool) -> None:
    """Publish the result of the ended *op*: wake its awaiters, count it, tell the observers, drop its keys."""
    head: Awaiters | None = op._op_result
    keys = op._op_keys
    op._op_state = outcome
    op._op_result = result
    op._op_raises = raises
    op._op_ready = True
    if head is not None:
        head.wake_all()
    owner = op._op_owner
    try:
        if owner is not None:
            owner.ended(op, outcome, head)
    finally:
        op._op_keys = ()
    if head is not None:
        head.keys = keys
        if outcome != FAILED and head.has_left and head.waiting == 0:
            handle_undelivered(op, keys)


def handle_undelivered(op: Operation, keys: tuple[Hashable, ...]) -> None:
    """Called when every awaiter of the ready *op* has left: report the failure, or release the result."""
    if op._op_retrieved or op._op_state == CANCELLED:
        return
    owner = op._op_owner
    if op._op_state == FAILED:
        if owner is not None:
            owner.left(op)
    elif not op._op_raises:
        put_back(op, op.on_undelivered, op._op_result, keys)


def put_back(
    op: Operation, on_undelivered: Callable[[Any], object], result: object, keys: tuple[Hashable, ...]
) -> None:
    """Release a *result* of *op*, which waited under *keys*, that nothing received (C3)."""
    owner = op._op_owner
    if owner is not None:
        owner.undelivered += 1
    call_hook(op, "on_undelivered", on_undelivered, result)
    if owner is not None:
        owner.call_again(keys)


def call_hook(op: Operation, name: str, hook: Callable[..., object], *arguments: object) -> None:
    """Call the *hook* of the ended *op*. Its exception, which no caller can receive, is reported."""
    try:
        require_plain(hook(*arguments), op, name)
    except (Exception, CancelledError) as exc:
        report(op, exc, f"{name} raised")


def report(op: Operation, exc: BaseException, message: str) -> None:
    """Pass *exc*, which no caller can receive, to the loop's exception handler."""
    if op._op_owner is not None:
        op._op_owner.loop.report(op, exc, message)


def publish_cancelled(op: Operation, msg: object) -> None:
    """Publish a cancellation. The result of a cancelled operation is its message."""
    publish(op, CANCELLED, msg, False)
    call_hook(op, "on_cancel", op.on_cancel)
    tell_end(op)


def publish_failure(op: Operation, exc: BaseException) -> None:
    """Publish a failure."""
    publish(op, FAILED, Failure(exc), True)
    call_hook(op, "on_failure", op.on_failure, exc)
    tell_end(op)


def tell_end(op: Operation) -> None:
    """Call on_end() of the ended *op*, if its class overrides that."""
    kind: Any = type(op)
    owner = op._op_owner
    if kind.on_end is not DEFAULT_ON_END:
        call_hook(op, "on_end", op.on_end, OUTCOMES[op._op_state])
    elif owner is not None:
        owner.plain_kind = kind


def complete(op: Operation, outcome: u8) -> None:
    """End the pending *op* as COMPLETED or EXPIRED."""
    unlink(op, outcome)
    publish_completed(op, outcome)


def publish_completed(op: Operation, outcome: u8) -> None:
    """Publish that *op* is COMPLETED or EXPIRED, with the result of its hook."""
    try:
        result = op.on_complete()
        if result is not None and type(result) is COROUTINE:
            require_plain(result, op, "on_complete")
    except BaseException as exc:
        publish_failure(op, as_failure(exc, "on_complete"))
        if not isinstance(exc, Exception):
            raise
        return
    raises = False
    if outcome == EXPIRED:
        try:
            require_plain(op.on_expiration(), op, "on_expiration")
        except Exception as exc:
            if isinstance(exc, TimeoutError):
                # An expected answer, not a fault. Its traceback would keep the hook's frame alive, that the operation,
                # and that this exception: one more cycle for the gc at every timeout.
                exc.__traceback__ = None
            result = Failure(as_failure(exc, "on_expiration"))
            raises = True
        except BaseException as exc:
            publish_failure(op, exc)
            raise
    publish(op, outcome, result, raises)
    owner = op._op_owner
    if owner is None or owner.plain_kind is not type(op):  # quicker than to look on_end() up by name at each end
        tell_end(op)


def fail(op: Operation, exc: BaseException) -> None:
    """End the pending *op* as FAILED."""
    unlink(op, FAILED)
    publish_failure(op, exc)


def attempt(op: Operation) -> u8:
    """Try the pending *op* once. An exception from try_complete() ends it, and no other operation (I11).

    Returns: its state after that.
    """
    op._op_trying = True
    try:
        ended = op.try_complete()
        op._op_trying = False
        if ended and op._op_state == PENDING:
            require_plain(ended, op, "try_complete")
            raise RuntimeError("try_complete returned True but did not end the operation; return self.force_complete()")
    except BaseException as exc:
        op._op_trying = False
        if op._op_state == PENDING:
            fail(op, as_failure(exc, "try_complete"))
        elif isinstance(exc, Exception):
            report(op, exc, "try_complete raised after the operation had ended")
        if not isinstance(exc, Exception):
            raise
    return op._op_state


def expire(op: Operation) -> bool:
    """Try *op* a last time at its deadline, out of the timer (I10), then end it as EXPIRED.

    Returns: False if that last try postponed the expiry, by Purgatory.reschedule() or for a last read.
    """
    op._op_due = DUE
    if attempt(op) == PENDING:
        if op._op_due != DUE:
            return False
        complete(op, EXPIRED)
    return True


def check_thread(op: Operation) -> None:
    """Raise RuntimeError if called outside the thread of the loop of *op* (I15)."""
    owner = op._op_owner
    if owner is not None:
        owner.loop.check_thread()


def cancel(op: Operation, msg: object) -> bool:
    """End *op* as CANCELLED if it is pending, and remove it from every key. Returns: whether it was pending."""
    if op._op_state != PENDING:
        return False
    check_thread(op)
    unlink(op, CANCELLED)
    publish_cancelled(op, msg)
    return True


def call_each_then_raise(ops: list[Operation], step: Callable[[Operation], object]) -> int:
    """Call *step* with each of *ops*. A BaseException is raised after the last, so that none is skipped.

    Returns: how often it returned something true.
    """
    found = 0
    interrupt: BaseException | None = None
    for op in ops:
        try:
            found += bool(step(op))
        except BaseException as exc:
            interrupt = exc
    if interrupt is not None:
        raise interrupt
    return found


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
        returned.close()  # else Python also warns of it
        raise TypeError(f"{type(op).__name__}.{hook} must be a plain function, not async def: hooks never wait")
