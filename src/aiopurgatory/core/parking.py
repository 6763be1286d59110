"""The way in: to be tried, registered, given a timeout, and tried again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf
from typing import TYPE_CHECKING

from ..errors import PurgatoryFullError
from .endings import attempt
from .moments import rounded_down, rounded_up

if TYPE_CHECKING:
    from .operation import Operation
    from .rules import Rules


def park(rules: Rules, op: Operation, keys: Iterable[Hashable]) -> bool:
    """Try, register under every key, arm the timeout, try again. True iff *op* ended on the way.

    The first try saves the registration. The second comes after it, so that no event is missed: what happened before
    is seen by the second try, and what happens later finds the operation under its key. Two tries, not one per key.

    Source: Kafka DelayedOperationPurgatory.tryCompleteElseWatch; differs: what a try raises ends the operation.
    """
    # I15: a loop that runs, and was started in this thread, is the one that runs here. asyncio.get_running_loop() says
    # the same, but asks the kernel for the process each time on Python 3.11: a sixth of a whole operation.
    if not rules._open or rules._get_ident() != rules._thread_ident or not rules._is_running():
        raise rules._refusal()
    # Refuse first, change state after.
    watch_keys = checked_keys(keys)
    if op._op_owner is not None:
        raise RuntimeError(f"op must be watched only once, got {op!r}")
    if op._op_outcome is not None:
        return False
    op._op_owner = rules
    op._op_keys = watch_keys
    if attempt(op) is not None:
        return True
    full = rules._max_pending is not None and rules._pending >= rules._max_pending
    if full or not rules._open:
        leave_untouched(op)
        if full:
            rules._refused += 1
            raise PurgatoryFullError(f"max_pending is {rules._max_pending}, and as many operations are pending")
        raise rules._refusal()
    now = rules._time()
    # atomic: no await
    try:
        rules._watchers.add(op, watch_keys)
    except BaseException:
        leave_untouched(op)
        raise
    op._op_watched_at = now
    rules._pending += 1
    if rules._purge_interval > 0:
        rules._estimated_total += 1
        rules._schedule_purge_if_due()
    # Before the second try and not after it: whatever that one does, nothing is left waiting without its timeout.
    arm(rules, op, now)
    return attempt(op) is not None


def leave_untouched(op: Operation) -> None:
    """Refused: it may be watched later, or elsewhere."""
    op._op_owner = None
    op._op_keys = ()
    op._op_number = None


def checked_keys(keys: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """*keys* as a tuple of distinct hashables, the given one if it is that already."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be an iterable of keys, got the single {type(keys).__name__} {keys!r}; pass [key]")
    found = keys if isinstance(keys, tuple) else tuple(keys)
    if not found:
        raise ValueError("keys must name at least one key, got none")
    return tuple(dict.fromkeys(found)) if may_repeat(found) else found


def may_repeat(keys: tuple[Hashable, ...]) -> bool:
    """Is one of the hashables *keys* perhaps there twice? For a few, a set costs thrice what their hashes do."""
    count = len(keys)
    first = hash(keys[0])
    if count == 1:
        return False
    second = hash(keys[1])
    if count == 2:
        return first == second
    third = hash(keys[2])
    if count == 3:
        return first == second or second == third or third == first
    return len(set(keys)) != count


def arm(rules: Rules, op: Operation, now: float) -> None:
    """Put the parked *op* into the timer: its timeout runs from *now*."""
    if op._op_timeout == inf:
        return
    timer = rules._timer
    timer.catch_up(rounded_down(now))
    op._ring_deadline = rounded_up(now + op._op_timeout)
    if not timer.add(op):
        # A timeout of 0 is due at once, but never in here: let it be due with the next tick.
        op._ring_deadline = timer.now + 1
        timer.add(op)
    if timer.soonest() < rules._armed:
        rules._arm_clock()
