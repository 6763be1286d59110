"""Something happened to a key: who waits there is asked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, cast

from .endings import COMPLETED, FAILED, attempt
from .watchers import listed

if TYPE_CHECKING:
    from .operation import Operation
    from .rules import Rules

#: Stands for every key among those to be checked.
EVERY_KEY: Final = object()


def count_check(rules: Rules, ended: int) -> None:
    rules._checks += 1
    if ended == 0:
        rules._checks_in_vain += 1


def check(rules: Rules, key: Hashable, entry: object, counted: bool = True) -> int:
    """Try everything in *entry*, which waits under *key*; how many of them that ended.

    A check from inside a check is queued and run when this one is through: a chain of any length neither recurses nor
    loses a link (I7). Queued twice counts once: it is run after the later call.
    """
    if rules._debug:
        rules._check_thread()
    if rules._walking:
        rules._nested[key] = None
        return 0
    rules._walking = True
    try:
        ended = try_all(rules, key, entry)
        if counted:
            count_check(rules, ended)
        while rules._nested:
            key = rules._nested.popitem(last=False)[0]
            entry = rules._watchers.get(key)
            if entry is not None or key is EVERY_KEY:
                count_check(rules, try_all(rules, key, entry))
    except BaseException:
        # On its way out; what it cut off is not lost.
        rules._soon[key] = None
        rules._soon.update(rules._nested)
        rules._nested.clear()
        rules._wake_clock()
        raise
    finally:
        rules._walking = False
    return ended


def try_all(rules: Rules, key: Hashable, entry: object) -> int:
    """Try every operation in *entry*, oldest first, as it is now: who comes later has seen a later state (I12)."""
    ended = 0
    if entry is not None and not isinstance(entry, dict):
        ended = try_one(rules, key, cast("Operation", entry))
    else:
        for op in rules._watchers.pending() if key is EVERY_KEY else listed(entry):
            ended += try_one(rules, key, op)
    return ended


def try_one(rules: Rules, key: Hashable, op: Operation) -> int:
    """Try *op*, waiting under *key*, unless it has ended; 1 if that ended it."""
    outcome = op._op_outcome
    ended = 0
    if outcome is None:
        outcome = attempt(op)
        if outcome is COMPLETED or outcome is FAILED:
            ended = 1
    if rules._purge_interval > 0 and outcome is not None:
        rules._watchers.drop(op, key)
    return ended
