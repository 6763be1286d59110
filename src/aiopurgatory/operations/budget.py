"""The remaining time of a request, which may have run out: what waits for 0 s or less is tried once and never parked.

DelayedOperation knows no such case: there, 0 is a deadline on a later loop iteration, and less is refused.
"""

from __future__ import annotations

from typing import Any

from ..core.endings import complete
from ..core.operation import Operation, is_parked, owner_of, seconds_of
from ..core.states import EXPIRED
from ..timer.ring import set_deadline


def budget(timeout: Any) -> Any:
    """*timeout*, or 0 if it is negative. What is no number is left for the operation to refuse."""
    if isinstance(timeout, float):
        seconds: float = timeout
        if seconds < 0.0:
            return 0.0
    elif timeout is not None and hasattr(timeout, "__float__") and timeout < 0:
        return 0.0
    return timeout


def is_only_try(op: Operation) -> bool:
    """Does try_complete() of the pending *op* run for the first time, with no time to wait?"""
    return seconds_of(op) == 0.0 and not is_parked(op)


def expire_unparked(op: Operation) -> bool:
    """End *op* as EXPIRED in its only try. Returns: True, for try_complete() to return."""
    owner = owner_of(op)
    if owner is not None:
        set_deadline(op, owner.loop.now())  # observers are told how late that was: not at all
    complete(op, EXPIRED)
    return True
