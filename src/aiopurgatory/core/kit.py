"""The door of the core: what code outside the core and the asyncio face may use of it.

Users import from the package. This is for the library's own operations, observers, routes and tools.
"""

from __future__ import annotations

from .awaiter import AwaitableOperation
from .endings import complete
from .faults import Failure, require_error, require_plain
from .loop import Loop
from .operation import Operation, is_due, is_parked, is_pending, keys_of, owner_of, seconds_of
from .outcome import Outcome
from .parking import Parking
from .purgatory import SyncPurgatory, parts_of
from .states import EXPIRED

__all__ = [
    "EXPIRED",
    "AwaitableOperation",
    "Failure",
    "Operation",
    "Outcome",
    "complete",
    "expire_only_try",
    "is_due",
    "is_parked",
    "is_pending",
    "keys_of",
    "loop_of",
    "owner_of",
    "parking_of",
    "require_error",
    "require_plain",
    "seconds_of",
]


def loop_of(purgatory: SyncPurgatory) -> Loop:
    """The loop of *purgatory*, its clock and its thread."""
    return parts_of(purgatory).loop


def expire_only_try(op: Operation) -> bool:
    """End *op* as EXPIRED, if its timeout is 0 and this is its first try. It never parks then.

    For the try_complete() of an operation behind an awaiting method: there, a timeout of 0 or less means one try.

    Returns: whether it ended *op*.
    """
    if seconds_of(op) > 0.0 or is_parked(op):
        return False
    complete(op, EXPIRED)
    return True


def parking_of(purgatory: SyncPurgatory) -> Parking:
    """The owner of the pending operations of *purgatory*. Calls through it skip the public method's look-up."""
    return parts_of(purgatory).parking
