"""How an operation ends.

Every ending goes through two steps. unlink() is the one change from pending to ended (I5), and takes the operation out
of the timer and of its keys (I6). publish() makes the result known. User code runs only between the two or after them,
when all structures are consistent (I7).
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Callable

from mypy_extensions import u8

from .faults import COROUTINE, Failure, as_failure, require_plain
from .operation import (
    CANCELLED,
    EXPIRED,
    FAILED,
    OUTCOMES,
    PENDING,
    Operation,
    exclude_last_read,
    has_end_hook,
    is_last_try,
    is_pending,
    mark_due,
    owner_of,
    publish,
    report,
    set_trying,
    state_of,
    unlink,
)


def publish_cancelled(op: Operation, msg: object) -> None:
    """Publish a cancellation. The result of a cancelled operation is its message."""
    publish(op, CANCELLED, msg, False)
    try:
        require_plain(op.on_cancel(), op, "on_cancel")
    except (Exception, CancelledError) as exc:
        report(op, exc, "on_cancel raised")
    if has_end_hook(op):
        tell_end(op)


def publish_failure(op: Operation, exc: BaseException) -> None:
    """Publish a failure."""
    publish(op, FAILED, Failure(exc), True)
    try:
        require_plain(op.on_failure(exc), op, "on_failure")
    except (Exception, CancelledError) as error:
        report(op, error, "on_failure raised")
    if has_end_hook(op):
        tell_end(op)


def tell_end(op: Operation) -> None:
    """Call on_end() of the ended *op*."""
    outcome = OUTCOMES[state_of(op)]
    assert outcome is not None
    try:
        require_plain(op.on_end(outcome), op, "on_end")
    except (Exception, CancelledError) as exc:
        report(op, exc, "on_end raised")


def complete(op: Operation, outcome: u8) -> None:
    """End the pending *op* as COMPLETED or EXPIRED."""
    unlink(op, outcome, False)
    publish_completed(op, outcome)


def publish_completed(op: Operation, outcome: u8) -> None:
    """Publish that *op* is COMPLETED or EXPIRED, with the result of its hook."""
    try:
        result = op.on_complete()
        if type(result) is COROUTINE:
            require_plain(result, op, "on_complete")
    except BaseException as exc:
        publish_failure(op, as_failure(exc, "on_complete"))
        if not isinstance(exc, Exception):
            raise
        return
    if outcome != EXPIRED:
        publish(op, outcome, result, False)
        if has_end_hook(op):
            tell_end(op)
        return
    try:
        require_plain(op.on_expiration(), op, "on_expiration")
    except Exception as exc:
        if isinstance(exc, TimeoutError):
            # An expected answer, not a fault. Its traceback would keep the hook's frame alive, that the operation, and
            # that this exception: one more cycle for the gc at every timeout.
            exc.__traceback__ = None
        publish(op, EXPIRED, Failure(as_failure(exc, "on_expiration")), True)
        if has_end_hook(op):
            tell_end(op)
    except BaseException as exc:
        publish_failure(op, exc)
        raise
    else:
        publish(op, EXPIRED, result, False)
        if has_end_hook(op):
            tell_end(op)


def fail(op: Operation, exc: BaseException) -> None:
    """End the pending *op* as FAILED."""
    unlink(op, FAILED, False)
    publish_failure(op, exc)


def attempt(op: Operation) -> u8:
    """Try the pending *op* once. An exception from try_complete() ends it, and no other operation (I11).

    Returns: its state after that.
    """
    set_trying(op, True)
    try:
        ended = op.try_complete()
        set_trying(op, False)
        if ended and is_pending(op):
            require_plain(ended, op, "try_complete")
            raise RuntimeError("try_complete returned True but did not end the operation; return self.force_complete()")
    except BaseException as exc:
        set_trying(op, False)
        if is_pending(op):
            fail(op, as_failure(exc, "try_complete"))
        elif isinstance(exc, Exception):
            report(op, exc, "try_complete raised after the operation had ended")
        if not isinstance(exc, Exception):
            raise
    return state_of(op)


def expire(op: Operation) -> bool:
    """Try *op* a last time at its deadline, out of the timer (I10), then end it as EXPIRED.

    Returns: False if that last try postponed the expiry, by Purgatory.reschedule() or for a last read.
    """
    mark_due(op)
    if attempt(op) == PENDING:
        if not is_last_try(op):
            return False
        complete(op, EXPIRED)
    return True


def expire_read(op: Operation, began: float) -> None:
    """End the pending *op* as EXPIRED after its last read, which *began* at its deadline and found nothing."""
    exclude_last_read(op, began)
    complete(op, EXPIRED)


def check_thread(op: Operation) -> None:
    """Raise RuntimeError if called outside the thread of the loop of *op* (I15)."""
    owner = owner_of(op)
    if owner is not None:
        owner.loop.check_thread()


def cancel(op: Operation, msg: object) -> bool:
    """End *op* as CANCELLED if it is pending, and remove it from every key. Returns: whether it was pending."""
    if not is_pending(op):
        return False
    check_thread(op)
    unlink(op, CANCELLED, True)
    publish_cancelled(op, msg)
    return True


def call_each_then_raise(ops: list[Operation], step: Callable[[Operation], bool]) -> list[Operation]:
    """Call *step* with each of *ops*. A BaseException is raised after the last, so that none is skipped.

    Returns: the operations for which it returned True.
    """
    found = []
    interrupt: BaseException | None = None
    for op in ops:
        try:
            if step(op):
                found.append(op)
        except BaseException as exc:
            interrupt = exc
    if interrupt is not None:
        raise interrupt
    return found
