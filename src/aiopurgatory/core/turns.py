"""The jobs of a turn of the clock task.

Each works for *share* seconds and returns whether there is more to do now (I8). A CancelledError in here comes from a
hook and has ended its operation; taken for a cancellation of the clock task, it would end everything (I11).
"""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from typing import TYPE_CHECKING, Final, cast

from .checks import EVERY_KEY, check, count_check
from .endings import expire, report
from .moments import rounded_down
from .operation import Operation

if TYPE_CHECKING:
    from .rules import Rules

#: Tasks to cascade between two looks at the time.
CASCADE_SLICE: Final = 128


def report_failures(rules: Rules, share: float) -> bool:
    """Tell the loop's exception handler of failures that nobody has looked at."""
    stop = rules._turn_time() + share
    while rules._failures:
        op = rules._failures.popleft()
        if not op._op_retrieved:
            report(rules, op, cast(BaseException, op._op_result), f"{op!r} failed and nobody awaits it")
            if rules._turn_time() >= stop:
                break
    return bool(rules._failures)


def expire_due(rules: Rules, share: float) -> bool:
    """Expire what is due, in order of tick-rounded deadline."""
    timer = rules._timer
    now = rounded_down(rules._time())
    stop = rules._turn_time() + share
    while True:
        task = timer.poll(now, CASCADE_SLICE)
        if task is not None:
            op = cast(Operation, task)
            try:
                expire(op)
            except CancelledError as exc:
                report_cancelled_error(rules, op, exc)
        else:
            due = timer.next_expiration()
            if due is None or due > now:
                return False
        if rules._turn_time() >= stop:
            return True


def report_cancelled_error(rules: Rules, op: Operation, exc: CancelledError) -> None:
    if op._op_result is not exc:  # else it is the operation's failure, and reported as that if nobody awaits it
        report(rules, op, exc, "CancelledError raised")


def check_soon(rules: Rules, share: float) -> bool:
    """Work off the keys marked by check_and_complete_soon()."""
    stop = rules._turn_time() + share
    while True:
        while rules._walk_ops:
            op = rules._walk_ops.pop()
            try:
                rules._walk_ended += check(rules, rules._walk_key, op, False)
            except CancelledError as exc:
                report_cancelled_error(rules, op, exc)
            if rules._turn_time() >= stop:
                return True
        if rules._walk_counts:
            rules._walk_counts = False
            count_check(rules, rules._walk_ended)
        if not rules._soon:
            rules._walk_key = None
            return False
        # Unmarked before it is walked: marked again meanwhile, it is walked once more.
        rules._walk_key = rules._soon.popitem(last=False)[0]
        if rules._walk_key is EVERY_KEY:
            rules._walk_ops = rules._watchers.pending()
        else:
            rules._walk_ops = rules._watchers.waiting(rules._walk_key)
        rules._walk_ops.reverse()
        rules._walk_counts = bool(rules._walk_ops)
        rules._walk_ended = 0


def begin_purge(rules: Rules) -> None:
    rules._estimated_total = rules._pending
    rules._purge_wanted = False
    rules._purges += 1
    rules._purge_keys = rules._watchers.keys()
    rules._purge_ops = []


def purge_some(rules: Rules, share: float) -> bool:
    """Sweep the lists of ended operations that deferred purging has left there."""
    stop = rules._turn_time() + share
    while True:
        while rules._purge_ops:
            op = rules._purge_ops.pop()
            if op._op_outcome is not None:
                before = rules._watchers.entries
                rules._watchers.drop(op, rules._purge_key)
                rules._purged += before - rules._watchers.entries
            if rules._turn_time() >= stop:
                return True
        if rules._purge_keys:
            rules._purge_key = rules._purge_keys.pop()
            rules._purge_ops = rules._watchers.waiting(rules._purge_key)
        elif rules._purge_wanted:
            begin_purge(rules)
        else:
            rules._purge_key = None
            return False
