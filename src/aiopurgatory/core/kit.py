"""The door of the core: code outside the core and the asyncio face may use only these names.

Users import from the package. This is for the library's own operations, observers, routes and tools. What is imported
"as" itself passes the door; the rest is used here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from .awaiter import AwaitableOperation as AwaitableOperation
from .checks import NO_CHECK as NO_CHECK
from .core import Core as Core
from .endings import Failure as Failure
from .endings import complete
from .endings import require_plain as require_plain
from .entry_points import checked_limit as checked_limit
from .entry_points import core_of as core_of
from .nanoseconds import NS as NS
from .nanoseconds import RANGE as RANGE
from .nanoseconds import ceil_ns as ceil_ns
from .observer import Observer as Observer
from .observer import checked_observers as checked_observers
from .operation import EXPIRED, MISSED, NOT_DUE, PENDING, UNPARKED, Operation
from .operation import deadline_seconds as deadline_seconds
from .outcome import Outcome as Outcome
from .standing import StandingWait as StandingWait
from .watchers import checked_keys as checked_keys


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


def seconds_of(op: Operation) -> float:
    """Its timeout; inf for none."""
    return op._op_timeout


def watched_at(op: Operation) -> float:
    return op._op_watched_at


def failure_of(op: Operation) -> BaseException | None:
    """The exception of the ended *op*, unless it was cancelled. Does not count as retrieving it."""
    return cast(Failure, op._op_result).exc if op._op_raises else None


def expire_only_try(op: Operation) -> bool:
    """End *op* as EXPIRED, if its timeout is 0 and this is its first try. It never parks then.

    For the try_complete() of an operation behind an awaiting method: there, a timeout of 0 or less means one try.

    Returns: whether it ended *op*.
    """
    if op._op_timeout > 0.0 or op._op_watched_at != UNPARKED:
        return False
    complete(op, EXPIRED)
    return True
