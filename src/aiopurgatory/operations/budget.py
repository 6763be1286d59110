"""Timeouts that may have run out: an operation with 0 s or less is tried once and never parked.

DelayedOperation differs: there, 0 is a deadline on a later loop iteration, and a negative timeout is refused.
"""

from __future__ import annotations

from typing import Any

from ..core.endings import complete
from ..core.operation import Operation, is_parked, owner_of, seconds_of
from ..core.states import EXPIRED
from ..timer.ring import set_deadline


def budget(timeout: Any) -> Any:
    """Return *timeout*, or 0 if it is negative. The operation refuses what is not a number."""
    if isinstance(timeout, float):
        seconds: float = timeout
        if seconds < 0.0:
            return 0.0
    elif timeout is not None and hasattr(timeout, "__float__") and timeout < 0:
        return 0.0
    return timeout


def is_only_try(op: Operation) -> bool:
    """Is this the first try_complete() of the pending *op*, with no time to wait?"""
    return seconds_of(op) == 0.0 and not is_parked(op)


def expire_unparked(op: Operation) -> bool:
    """End *op* as EXPIRED in its only try. Returns: True, for try_complete() to return."""
    owner = owner_of(op)
    if owner is not None:
        set_deadline(op, owner.loop.now())  # so that observers are told a lateness of 0
    complete(op, EXPIRED)
    return True
