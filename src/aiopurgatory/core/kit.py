"""The door of the core: code outside the core and the asyncio face may use only these names.

Users import from the package. This is for the library's own operations, observers, routes and tools.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, cast

from ..timer import Timer
from .awaiter import AwaitableOperation
from .checks import ALL, EVERY_KEY, NO_CHECK, KeyChecks
from .core import Core
from .endings import complete
from .entry_points import EntryPoints, checked_limit, core_of
from .faults import Failure, require_error, require_plain
from .loop import Loop
from .nanoseconds import NS, RANGE, ceil_ns, floor_ns
from .observer import Finder, Observer, Observers, checked_observers
from .operation import EXPIRED, MISSED, NOT_DUE, PENDING, UNPARKED, Operation, Owner, deadline_seconds
from .outcome import Outcome
from .watchers import Watchers, checked_keys, count_in, listed, oldest

__all__ = [
    "ALL",
    "EVERY_KEY",
    "EXPIRED",
    "NO_CHECK",
    "NS",
    "RANGE",
    "AwaitableOperation",
    "Core",
    "Failure",
    "Finder",
    "KeyChecks",
    "Observer",
    "Operation",
    "Outcome",
    "Watchers",
    "ceil_ns",
    "check_purgatory",
    "checked_keys",
    "checked_limit",
    "checked_observers",
    "checks_of",
    "complete",
    "context_of_waiter",
    "core_of",
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


def loop_of(purgatory: EntryPoints) -> Loop:
    """The loop of *purgatory*, its clock and its thread."""
    return core_of(purgatory).loop


def context_of_waiter(purgatory: EntryPoints) -> Any:
    """The contextvars context of the task that first awaited the operation, for the ended() of an observer.

    Returns: the context, or one like it; None if nothing has awaited the operation.
    """
    return core_of(purgatory).observers.context()


def expire_only_try(op: Operation) -> bool:
    """End *op* as EXPIRED, if its timeout is 0 and this is its first try. It never parks then.

    For the try_complete() of an operation behind an awaiting method: there, a timeout of 0 or less means one try.

    Returns: whether it ended *op*.
    """
    if op._op_timeout > 0.0 or op._op_watched_at != UNPARKED:
        return False
    complete(op, EXPIRED)
    return True


def watchers_of(purgatory: EntryPoints) -> Watchers:
    """The operations of *purgatory* under each key."""
    return core_of(purgatory).watchers


def timer_of(purgatory: EntryPoints) -> Timer:
    """The timer of *purgatory*, in nanoseconds."""
    return core_of(purgatory).deadlines.timer


def checks_of(purgatory: EntryPoints) -> KeyChecks:
    """The checks of *purgatory*: to announce one that comes later."""
    return core_of(purgatory).checks


def turn_budget_of(purgatory: EntryPoints) -> float:
    """Seconds that the work of *purgatory* may take of one loop iteration."""
    return core_of(purgatory).turn_budget


def purge_interval_of(purgatory: EntryPoints) -> int:
    """The ``purge_interval`` of *purgatory*."""
    return core_of(purgatory).purging.interval


def unique(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return *observers* without duplicates."""
    return tuple({id(observer): observer for observer in observers}.values())


def observers_of(purgatory: EntryPoints, more: tuple[Observer, ...]) -> Observers:
    """The observers of *purgatory*, and *more*: each once."""
    core = core_of(purgatory)
    return Observers(core.loop, unique((*core.observers.observers, *more)))


def tell_opened(purgatory: EntryPoints, what: object, more: tuple[Observer, ...] = ()) -> None:
    """Tell the observers of *purgatory*, and *more*, that *what* has opened. It is built on the purgatory."""
    observers_of(purgatory, more).tell(None, lambda observer: observer.opened(what))


def tell_closed(purgatory: EntryPoints, what: object, more: tuple[Observer, ...] = ()) -> None:
    """Tell the observers of *purgatory*, and *more*, that *what* has closed."""
    observers_of(purgatory, more).tell(None, lambda observer: observer.closed(what))


def check_purgatory(purgatory: EntryPoints) -> None:
    """Check every structure of *purgatory*. Raises: AssertionError: names the broken invariant."""
    core_of(purgatory).verify()
