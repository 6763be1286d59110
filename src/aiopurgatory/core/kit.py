"""The door of the core: code outside the core and the asyncio face may use only these names.

Users import from the package. This is for the library's own operations, observers, routes and tools.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, cast

from ..timer import Timer
from .awaiter import AwaitableOperation
from .checks import ALL, EVERY_KEY, NO_CHECK, KeyChecks
from .endings import complete
from .faults import Failure, require_error, require_plain
from .loop import Loop
from .nanoseconds import NS, RANGE, ceil_ns, floor_ns
from .observer import Finder, Observer, Observers, checked_observers
from .operation import EXPIRED, MISSED, NOT_DUE, PENDING, UNPARKED, Operation, Owner, deadline_seconds
from .outcome import Outcome
from .parking import Parking, checked_keys
from .purgatory import Parts, SyncPurgatory, checked_limit, parts_of
from .watchers import Watchers, count_in, listed, oldest

__all__ = [
    "ALL",
    "EVERY_KEY",
    "EXPIRED",
    "NO_CHECK",
    "NS",
    "RANGE",
    "AwaitableOperation",
    "Failure",
    "Finder",
    "KeyChecks",
    "Observer",
    "Operation",
    "Outcome",
    "Parts",
    "SyncPurgatory",
    "Watchers",
    "ceil_ns",
    "check_purgatory",
    "checked_keys",
    "checked_limit",
    "checked_observers",
    "checks_of",
    "complete",
    "context_of_waiter",
    "count_in",
    "deadline_seconds",
    "expire_only_try",
    "failure_of",
    "floor_ns",
    "is_due",
    "is_missed",
    "is_pending",
    "keys_of",
    "listed",
    "loop_of",
    "mark_retrieved",
    "number_of",
    "oldest",
    "owner_of",
    "parking_of",
    "purge_interval_of",
    "require_error",
    "require_plain",
    "seconds_of",
    "tell_closed",
    "tell_opened",
    "timer_of",
    "turn_budget_of",
    "watched_at",
    "watchers_of",
]


def is_pending(op: Operation) -> bool:
    return op._op_state == PENDING


def is_due(op: Operation) -> bool:
    """Has its deadline passed?"""
    return op._op_due != NOT_DUE


def is_missed(op: Operation) -> bool:
    """Did the ended *op* miss its trigger? See Observer.missed()."""
    return op._op_due == MISSED


def keys_of(op: Operation) -> tuple[Hashable, ...]:
    """Its keys. (A subclass may use the name of the property for something else.)"""
    return op._op_keys


def number_of(op: Operation) -> object:
    return op._op_number


def seconds_of(op: Operation) -> float:
    """Its timeout; inf for none."""
    return op._op_timeout


def owner_of(op: Operation) -> Owner | None:
    return op._op_owner


def watched_at(op: Operation) -> float:
    return op._op_watched_at


def failure_of(op: Operation) -> BaseException | None:
    """The exception of the ended *op*, unless it was cancelled. Does not count as retrieving it."""
    return cast(Failure, op._op_result).exc if op._op_raises else None


def mark_retrieved(op: Operation) -> None:
    """Note that its failure need not be reported."""
    op._op_retrieved = True


def loop_of(purgatory: SyncPurgatory) -> Loop:
    """The loop of *purgatory*, its clock and its thread."""
    return parts_of(purgatory).loop


def context_of_waiter(purgatory: SyncPurgatory) -> Any:
    """The contextvars context of the task that first awaited the operation, for the ended() of an observer.

    Returns: the context, or one like it; None if nothing has awaited the operation.
    """
    return parts_of(purgatory).observers.context()


def expire_only_try(op: Operation) -> bool:
    """End *op* as EXPIRED, if its timeout is 0 and this is its first try. It never parks then.

    For the try_complete() of an operation behind an awaiting method: there, a timeout of 0 or less means one try.

    Returns: whether it ended *op*.
    """
    if op._op_timeout > 0.0 or op._op_watched_at != UNPARKED:
        return False
    complete(op, EXPIRED)
    return True


def parking_of(purgatory: SyncPurgatory) -> Parking:
    """The owner of the pending operations of *purgatory*. Calls through it skip the public method's look-up."""
    return parts_of(purgatory).parking


def watchers_of(purgatory: SyncPurgatory) -> Watchers:
    """The operations of *purgatory* under each key."""
    return parts_of(purgatory).watchers


def timer_of(purgatory: SyncPurgatory) -> Timer:
    """The timer of *purgatory*, in nanoseconds."""
    return parts_of(purgatory).deadlines.timer


def checks_of(purgatory: SyncPurgatory) -> KeyChecks:
    """The checks of *purgatory*: to announce one that comes later."""
    return parts_of(purgatory).checks


def turn_budget_of(purgatory: SyncPurgatory) -> float:
    """Seconds that the work of *purgatory* may take of one loop iteration."""
    return parts_of(purgatory).iteration.budget


def purge_interval_of(purgatory: SyncPurgatory) -> int:
    """The ``purge_interval`` of *purgatory*."""
    return parts_of(purgatory).purging.interval


def unique(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return *observers* without duplicates."""
    return tuple({id(observer): observer for observer in observers}.values())


def observers_of(purgatory: SyncPurgatory, more: tuple[Observer, ...]) -> Observers:
    """The observers of *purgatory*, and *more*: each once."""
    parts = parts_of(purgatory)
    return Observers(parts.loop, unique((*parts.observers.observers, *more)))


def tell_opened(purgatory: SyncPurgatory, what: object, more: tuple[Observer, ...] = ()) -> None:
    """Tell the observers of *purgatory*, and *more*, that *what* has opened. It is built on the purgatory."""
    observers_of(purgatory, more).tell(None, lambda observer: observer.opened(what))


def tell_closed(purgatory: SyncPurgatory, what: object, more: tuple[Observer, ...] = ()) -> None:
    """Tell the observers of *purgatory*, and *more*, that *what* has closed."""
    observers_of(purgatory, more).tell(None, lambda observer: observer.closed(what))


def check_purgatory(purgatory: SyncPurgatory) -> None:
    """Check every structure of *purgatory*. Raises: AssertionError: names the broken invariant."""
    parts_of(purgatory).verify()
