"""How an operation ends: the state changes, in one place.

Every ending goes through begin_end(), which is the one step from pending to ended (I5) and takes the operation out of
everything it hangs in (I6), and through settle(), which makes the result known. User code runs only between or after
the two, when the structures are consistent (I7).

These are functions and not methods of Operation: a method of a class that interpreted code may subclass is looked up
by name at each call, even from compiled code.
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, cast

from .moments import NS
from .outcome import Outcome

if TYPE_CHECKING:
    from .operation import Operation
    from .rules import Rules

COMPLETED: Final = Outcome.COMPLETED
EXPIRED: Final = Outcome.EXPIRED
CANCELLED: Final = Outcome.CANCELLED
FAILED: Final = Outcome.FAILED


def is_parked(op: Operation) -> bool:
    """Is the pending *op* under its keys, and in the timer if it has a deadline? (Another flag would cost 8 bytes.)"""
    return op._op_watched_at > -inf


def begin_end(op: Operation, outcome: Outcome, every_key: bool) -> None:
    """Mark the pending *op* as ended, and take it out of the timer and of its keys.

    Args:
        every_key: leave all keys now; else deferred purging may leave entries for later.
    """
    owner = op._op_owner
    if owner is not None and owner._debug:
        owner._check_thread()
    op._op_outcome = outcome  # I5: every other ending finds it ended from here on
    if owner is None or not is_parked(op):
        return
    # atomic: no await
    owner._timer.cancel(op)
    owner._pending -= 1
    if every_key or owner._purge_interval == 0:
        owner._watchers.remove(op, op._op_keys)
    if owner._purge_interval > 0:
        owner._schedule_purge_if_due()


def settle(op: Operation, outcome: Outcome, result: object, raises: bool) -> None:
    """Make the result of the ended *op* known: count it, wake who awaits it, tell the observers, drop its keys."""
    op._op_outcome = outcome
    op._op_result = result
    op._op_raises = raises
    op._op_ready = True
    head = op._op_awaiters
    if head is not None:
        head.wake_all()
    owner = op._op_owner
    if owner is not None:
        if outcome is COMPLETED:
            owner._completed += 1
            if op._op_due and missed_trigger(op):
                owner._missed_triggers += 1
        elif outcome is EXPIRED:
            owner._expired += 1
        elif outcome is CANCELLED:
            owner._cancelled += 1
        else:
            owner._failed += 1
            if head is None and not op._op_retrieved:
                owner._report_failure_later(op)
    try:
        if owner is not None and owner._observers:
            notify(owner, op, outcome)
    finally:
        op._op_keys = ()
    if head is not None and head.all_left():
        give_back(op)


def complete(op: Operation, outcome: Outcome) -> None:
    """End the pending *op* as COMPLETED or EXPIRED."""
    begin_end(op, outcome, False)
    try:
        result = op.on_complete()
    except BaseException as exc:
        settle(op, FAILED, as_failure(exc, "on_complete"), True)
        if not isinstance(exc, Exception):
            raise
        return
    if outcome is EXPIRED:
        try:
            op.on_expiration()
        except Exception as exc:
            if isinstance(exc, TimeoutError):
                # An answer and no fault. Its traceback would keep the hook's frame, that the operation, and that this:
                # every timeout one more cycle for the gc.
                exc.__traceback__ = None
            settle(op, EXPIRED, as_failure(exc, "on_expiration"), True)
            return
        except BaseException as exc:
            settle(op, FAILED, exc, True)
            raise
    settle(op, outcome, result, False)


def fail(op: Operation, exc: BaseException) -> None:
    """End the pending *op* as FAILED."""
    begin_end(op, FAILED, False)
    settle(op, FAILED, exc, True)


def cancel(op: Operation, msg: object) -> bool:
    """End *op* as CANCELLED if it is pending, gone from every key at once."""
    if op._op_outcome is not None:
        return False
    begin_end(op, CANCELLED, True)
    op._op_result = msg
    return settle_cancelled(op)


def settle_cancelled(op: Operation) -> bool:
    """The second half of cancel()."""
    settle(op, CANCELLED, op._op_result, False)
    try:
        op.on_cancel()
    except Exception as exc:
        report(op._op_owner, op, exc, "on_cancel raised")
    return True


def attempt(op: Operation) -> Outcome | None:
    """Ask the pending *op* once; whatever it raises ends it, and it alone (I11).

    Returns: how it has ended, if it has. Callers must go by this and not read the outcome again: mypyc takes what it
    has once seen there to be unchanged by a call.
    """
    try:
        if op.try_complete() and op._op_outcome is None:
            raise RuntimeError("try_complete returned True but did not end the operation; return self.force_complete()")
    except BaseException as exc:
        if op._op_outcome is None:
            fail(op, as_failure(exc, "try_complete"))
        elif isinstance(exc, Exception):
            report(op._op_owner, op, exc, "try_complete raised after the operation had ended")
        if not isinstance(exc, Exception):
            raise
    return op._op_outcome


def expire(op: Operation) -> bool:
    """Time is up for *op*, which has left the timer: ask it once more (I10), then end it as EXPIRED.

    Returns: False if it has put its expiry off in that last try, by Purgatory.reschedule().
    """
    op._op_due = True
    if attempt(op) is None:
        if not op._op_due:
            return False
        complete(op, EXPIRED)
    return True


def missed_trigger(op: Operation) -> bool:
    """Had nobody checked a key of *op*, which completed in the last try at its deadline?"""
    rules = op._op_owner
    if rules is None or rules._expiring:
        return False
    for key in op._op_keys:
        if key in rules._soon:
            return False  # somebody had, and its turn was about to come
    return not (rules._walk_ops and rules._walk_key in op._op_keys)


def take_result(op: Operation) -> object:
    """The result of the ended *op*, or what it raises."""
    op._op_retrieved = True
    if op._op_outcome is CANCELLED:
        raise cancelled_error(op)
    if op._op_raises:
        raise cast(BaseException, op._op_result)
    return op._op_result


def cancelled_error(op: Operation) -> CancelledError:
    return CancelledError() if op._op_result is None else CancelledError(op._op_result)


def for_each(ops: list[Operation], step: Callable[[Operation], bool]) -> list[Operation]:
    """Take *step* for every one of *ops*; a BaseException is raised after the last, so that it cuts nobody off.

    Returns: those for which it returned True.
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


def give_back(op: Operation) -> None:
    """Every awaiter of the ended *op* has left and none took its result."""
    op._op_awaiters = None
    owner = op._op_owner
    if op._op_outcome is FAILED:
        if owner is not None and not op._op_retrieved:
            owner._report_failure_later(op)
    elif op._op_outcome is not CANCELLED and not op._op_raises and not op._op_retrieved:
        if owner is not None:
            owner._undelivered += 1
        try:
            op.on_undelivered(op._op_result)
        except Exception as exc:
            report(owner, op, exc, "on_undelivered raised")


def notify(owner: Rules, op: Operation, outcome: Outcome) -> None:
    """Tell the observers that *op* has ended."""
    now = owner._time()
    # Not parked, not waited: the first try ended it.
    waited = now - op._op_watched_at if is_parked(op) else 0.0
    lateness: float | None = None
    if outcome is EXPIRED:  # by expire_all() perhaps, and then before its deadline, or without one
        lateness = 0.0 if op._op_timeout == inf else max(now - op._ring_deadline / NS, 0.0)
    for observer in owner._observers:
        try:
            observer.ended(op, outcome, waited, lateness)
        except Exception as exc:
            report(owner, op, exc, "observer raised")


def report(owner: Rules | None, op: Operation | None, exc: BaseException, message: str) -> None:
    """Hand *exc*, which no caller can be given, to the loop's exception handler."""
    if owner is not None:
        owner._call_exception_handler({"message": f"aiopurgatory: {message}", "exception": exc, "operation": op})


def as_failure(exc: BaseException, hook: str) -> BaseException:
    """*exc* as it can be raised out of an await: a StopIteration would end the awaiting coroutine instead."""
    if not isinstance(exc, StopIteration):
        return exc
    failure = RuntimeError(f"{hook} raised StopIteration")
    failure.__cause__ = exc
    return failure
