"""The door of the core: code outside the core and the asyncio face may use only these names.

Users import from the package. This is for the library's own operations, observers, routes and tools. What is imported
"as" itself passes the door; the rest is used here.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..arguments import Items
from .awaited import AwaitedWait as AwaitedWait
from .awaiter import AwaitableOperation as AwaitableOperation
from .bell import NO_CHECK as NO_CHECK
from .core import Core as Core
from .endings import Failure as Failure
from .endings import require_plain as require_plain
from .entry_points import EntryPoints, OpT
from .entry_points import checked_limit as checked_limit
from .entry_points import core_of as core_of
from .nanoseconds import NS as NS
from .nanoseconds import RANGE as RANGE
from .nanoseconds import ceil_ns as ceil_ns
from .observer import Observer as Observer
from .observer import checked_observers as checked_observers
from .operation import MISSED, PENDING, Operation
from .operation import deadline_seconds as deadline_seconds
from .outcome import Outcome as Outcome
from .stream_wait import StreamWait as StreamWait
from .watchers import checked_keys as checked_keys


def is_pending(op: Operation) -> bool:
    return op._op_state == PENDING


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
    failure: Failure | None = op._op_result if op._op_raises else None
    return None if failure is None else failure.exc


def park_awaited(purgatory: EntryPoints, op: OpT, keys: Items[Hashable]) -> OpT:
    """Watch *op*, which is behind an awaiting method: with a timeout of 0, it is tried once, and does not wait."""
    core_of(purgatory).park(op, keys, at_once=True)
    return op


def announce_check(purgatory: EntryPoints, key: Hashable, is_coming: bool) -> None:
    """Say that *key* will be checked, or no longer: until then, completing at a deadline misses no trigger."""
    coming = core_of(purgatory).checks.coming
    if is_coming:
        coming.add(key)
    else:
        coming.discard(key)
