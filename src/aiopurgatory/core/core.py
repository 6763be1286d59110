"""The core of a purgatory: its parts wired together, the way in and out, and the work of a loop iteration.

Operations are tried, registered, given a timeout, tried again, refused and ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, final

from mypy_extensions import u8

from ..arguments import described
from ..errors import PurgatoryClosedError, PurgatoryFullError
from ..statistics import Statistics
from .checks import EVERY_KEY
from .deadlines import AWAKE, ClockAlarm, Deadlines, TimedBlock
from .endings import attempt, call_each_then_raise, complete, publish_failure, unlink
from .loop import Loop
from .nanoseconds import timeout_seconds
from .observer import Finder, Observer, Observers
from .operation import (
    CANCELLED,
    COMPLETED,
    EXPIRED,
    FAILED,
    MISSED,
    NOT_DUE,
    NOT_GIVEN,
    PENDING,
    UNPARKED,
    UNSET,
    Awaiters,
    Operation,
    Owner,
    no_timeout,
    not_an_operation,
    require_mutable,
)
from .purging import Purging
from .unawaited import Unawaited
from .watchers import ALL, Watchers, checked_keys

# The states of a purgatory.
NEW: Final = 0
OPEN: Final = 1
CLOSED: Final = 2
FORKED: Final = 3


@final
class Core(Owner):
    """
    Args:
        tick_ns: the timer's tick in nanoseconds.
        purge_interval: see Purging.
        max_pending: refuse to park more operations than this; None for no limit.
        turn_budget: seconds that one loop iteration may take. Expiry, checks and purging share it (I8).
        finder: makes what finds mistakes.
    """

    def __init__(
        self,
        name: str,
        tick_ns: int,
        wheel_size: int,
        purge_interval: int,
        max_pending: int | None,
        turn_budget: float,
        observers: tuple[Observer, ...] = (),
        finder: Callable[[Loop, Watchers], Finder] = Finder,
    ) -> None:
        loop = Loop(name)
        super().__init__(loop)
        self.alarm: Final = ClockAlarm()
        self.purging: Final = Purging(purge_interval, loop, self.alarm)
        self.watchers: Final = self.purging.watchers
        self.observers: Final = Observers(loop, observers)
        self.deadlines: Final = Deadlines(tick_ns, wheel_size, loop, self.alarm, self.watchers)
        self.finder: Final = finder(loop, self.watchers)
        self.checks: Final = self.purging.checks(self.finder, turn_budget)
        self._unawaited: Final = Unawaited(loop, turn_budget)
        self._max_pending: Final = ALL if max_pending is None else max_pending
        #: The class of the newest operation that was watched.
        self._last_kind: Any = None
        self.turn_budget: Final = turn_budget
        self.state = NEW
        #: It is closed, but end_in_turns() has not ended all.
        self.is_ending = False
        # How operations ended: each counts in exactly one of these (I5).
        self.completed = 0
        self.expired = 0
        self.cancelled = 0
        self.failed = 0
        #: Completed by the last try, though none of their keys had been checked.
        self.missed = 0
        #: PurgatoryFullError raised.
        self.refused = 0
        #: Reads of hand-outs whose tasks have left: they go on.
        self.kept_reads: Final[set[Any]] = set()
        #: Seconds that the longest iteration took.
        self.longest_turn = 0.0

    # life

    def open(self) -> None:
        self.deadlines.start()
        self.state = OPEN

    def end_in_turns(self) -> Iterator[None]:
        """Refuse everything from now on, and end the pending operations. Yields when a turn is over. Call close() then.

        Meanwhile, checks find nothing, as after close().
        """
        self.state = CLOSED
        self.loop.is_left = self.is_ending = True
        self.checks.hold()
        stop = self.loop.turn_time() + self.turn_budget
        for op in self.checks.listed_in_slices(EVERY_KEY):
            if op._op_state == PENDING:
                unlink(op, FAILED)
                self._publish_closed(op)
            if self.loop.turn_time() >= stop:
                yield
                if not self.is_ending:  # somebody has called close(), and perhaps start()
                    return
                stop = self.loop.turn_time() + self.turn_budget

    def close(self) -> None:
        """Refuse everything from now on, and end every pending operation (I13)."""
        self.state = CLOSED
        self.loop.is_left = True
        self.is_ending = False
        pending = self.watchers.all_pending()
        for op in pending:  # atomic: no await. Unlink all before publishing one
            unlink(op, FAILED)
        self.watchers.clear()  # of entries that could not be dropped
        self.purging.clear()
        self.checks.clear()
        blocks = self.deadlines.take_blocks()
        try:
            call_each_then_raise(pending, self._publish_closed)
        finally:
            for block in blocks:  # after that: a follow() in a block leaves it quietly
                block.close()
            self._unawaited.report_all()

    def leave_to_parent(self) -> None:
        """Called in the child of a fork: the loop and all pending operations belong to the parent (I15)."""
        self.state = FORKED
        self.loop.leave_to_parent()

    def work(self) -> bool:
        """Expire, check and purge in one loop iteration, within the budget. Returns: whether work is left."""
        turn_time = self.loop.turn_time
        self.alarm.until = AWAKE  # the timer is polled before the clock sleeps again
        self.loop.note_thread()
        begin = turn_time()
        share = self.turn_budget / (1 + self.checks.has_work() + self.purging.has_work())
        more = self.deadlines.expire_due(share)
        more = self.checks.work(share) or more
        more = self.purging.work(share) or more
        self.longest_turn = max(self.longest_turn, turn_time() - begin)
        return more or self.checks.has_work()

    # the way in

    def park(self, candidate: Any, keys: Any, timeout: object = NOT_GIVEN, at_once: bool = False) -> bool:
        """Try, register under every key, start the timeout, try again. Returns: True iff that ended the operation.

        The first try may save the registration. The second follows it, so that no event is missed: an earlier event is
        seen by the second try, and a later one finds the operation under its key. That makes two tries, not one per
        key.

        Args: at_once: with a timeout of 0, the first try is the only one: it is behind an awaiting method.

        Source: Kafka DelayedOperationPurgatory.tryCompleteElseWatch; differs: an exception in a try ends the operation.
        """
        if self.state != OPEN or not self.loop.is_here():
            raise self.refusal()
        # Refuse first, change state after.
        if not isinstance(candidate, Operation):
            raise not_an_operation(candidate)
        op = candidate
        if type(op) is not self._last_kind:
            require_mutable(type(op))
            self._last_kind = type(op)
        watch_keys = checked_keys(keys)
        seconds = op._op_timeout if timeout is NOT_GIVEN else timeout_seconds(timeout)
        if seconds == UNSET:
            raise no_timeout(op)
        if op._op_owner is not None:  # an iterable of keys may have watched it meanwhile
            raise RuntimeError(f"op must be watched only once, got {described(op)}; make a new one for each watch()")
        op._op_owner = self
        if op._op_state != PENDING:
            return False
        op._op_timeout = seconds
        op._op_keys = watch_keys
        if attempt(op) != PENDING:
            return True
        if at_once and op._op_timeout == 0.0:
            complete(op, EXPIRED)
            return True
        now = self.loop.time()
        # atomic: no await
        try:
            if self.state != OPEN:
                raise self.refusal()
            if self.watchers.pending >= self._max_pending and op._op_due == NOT_DUE:
                raise self._full()
            self.watchers.enter(op, watch_keys)
        except BaseException:  # it may be watched later or by another purgatory
            op._op_owner = None
            op._op_keys = ()
            op._op_number = None
            raise
        op._op_watched_at = now
        # Before the second try, not after it: even if the try fails, no operation is left waiting without its timeout.
        self.deadlines.arm(op, now)
        return attempt(op) != PENDING

    def reschedule(self, candidate: Any, seconds: float) -> bool:
        """Restart the timeout of an operation. Returns: False if it has ended."""
        if not isinstance(candidate, Operation):
            raise not_an_operation(candidate)
        op = candidate
        if op._op_state != PENDING:
            return False
        if op._op_owner is not self:
            raise ValueError(f"op must be watched by this purgatory, got {described(op)}")
        self.loop.check_thread()
        # atomic: no await
        op._op_timeout = seconds
        op._op_due = NOT_DUE
        if op._op_watched_at != UNPARKED:
            self.deadlines.timer.cancel(op)
            self.deadlines.arm(op, self.loop.time())
        return True

    def refusal(self) -> Exception:
        """Return the exception that says why nothing can be watched now."""
        name = self.loop.name
        if self.state == CLOSED:
            return PurgatoryClosedError(f"purgatory {name!r} is closed")
        if self.state == NEW:
            return RuntimeError(
                f"purgatory {name!r} is not started; use 'async with' or await start(); in a web app, in its lifespan"
            )
        if self.loop.is_foreign_thread():
            return RuntimeError(self.loop.wrong_thread())
        return RuntimeError(f"purgatory {name!r} belongs to another event loop; start one in each loop")

    def _full(self) -> Exception:
        self.refused += 1
        limit = self._max_pending
        return PurgatoryFullError(
            f"purgatory {self.loop.name!r} is full: {limit} operations pending (max_pending={limit})"
        )

    # the way out

    def waiting(self, key: Hashable) -> list[Operation]:
        """The pending operations under *key*, oldest first."""
        return [op for op in self.watchers.waiting(key) if op._op_state == PENDING]

    def end_for_key(self, key: Hashable, outcome: u8, publish_it: Callable[[Operation], object]) -> list[Operation]:
        """End every operation waiting under *key*. Returns: those operations, in the order of watch()."""
        self.loop.check_thread()
        ops = self.waiting(key)
        for op in ops:  # atomic: no await. Unlink all first: a hook that calls this again finds none
            op._op_due = NOT_DUE  # no check is missing, even in its last read
            unlink(op, outcome)
        call_each_then_raise(ops, publish_it)
        return ops

    def _publish_closed(self, op: Operation) -> None:
        op._op_retrieved = True  # the caller of close() knows: do not report each to the loop's exception handler
        publish_failure(op, PurgatoryClosedError(f"purgatory {self.loop.name!r} was closed"))

    # called by operations

    def detach(self, op: Operation) -> None:
        # atomic: no await
        self.deadlines.timer.cancel(op)
        raised = self.watchers.leave(op)
        if raised is not None:  # the operation ends even so; a sweep finds the entry by its stored key
            self.purging.schedule()
            self.loop.report(op, raised, "a key cannot be compared")

    def ended(self, op: Operation, outcome: u8, head: Awaiters | None) -> None:
        if outcome == COMPLETED:
            self.completed += 1
            if op._op_due != NOT_DUE and self.is_unchecked(op):
                self.missed += 1
                op._op_due = MISSED
                self.finder.missed(op)
                self.observers.missed(op)
        elif outcome == EXPIRED:
            self.expired += 1
        elif outcome == CANCELLED:
            self.cancelled += 1
        else:
            self.failed += 1
            if head is None or head.waiting == 0:
                self.left(op)
        if self.observers.observers:
            self.observers.ended(op, outcome, head)

    def left(self, op: Operation) -> None:
        if not op._op_retrieved:
            self._unawaited.add(op, self.state == OPEN)

    def call_again(self, keys: tuple[Hashable, ...]) -> None:
        self.checks.call_again(keys)

    def is_unchecked(self, op: Operation) -> bool:
        """Return True if the time of *op* is up and no check of its keys is on its way."""
        if self.deadlines.is_expiring_all:
            return False
        return self.loop.guarded(self.checks.is_about_to_check, op) is False

    # to inspect

    def statistics(self) -> Statistics:
        timer, checks, purging = self.deadlines.timer, self.checks, self.purging
        return Statistics(
            name=self.loop.name,
            pending=self.watchers.pending,
            watched_entries=self.watchers.entries,
            keys=len(self.watchers.by_key),
            completed=self.completed,
            expired=self.expired,
            cancelled=self.cancelled,
            failed=self.failed,
            missed_triggers=self.missed,
            missed_kinds=tuple([(*kind, count) for kind, count in self.finder.missed_kinds.items()]),
            refused=self.refused,
            undelivered=self.undelivered,
            checks=checks.checks,
            checks_without_effect=checks.without_effect,
            reads=self.reads,
            reads_in_vain=self.reads_in_vain,
            checks_of_twins=self.finder.checks_of_twins,
            cascaded=self.deadlines.cascaded_before + timer.cascaded,
            wakeups=self.alarm.wakeups,
            purges=purging.purges,
            purged=purging.purged,
            estimated_total=self.watchers.pending + purging.ended,
            levels=timer.levels,
            buckets=len(timer.occupied()),
            pending_by_level=timer.pending_by_level(),
            timeouts=self.deadlines.blocks,
            longest_turn=self.longest_turn,
        )

    def verify(self) -> None:
        """Check every structure against every other. Raises: AssertionError: names the broken invariant."""
        entries_timed = self.deadlines.timer.verify()
        timed = {id(entry) for entry in entries_timed if not isinstance(entry, TimedBlock)}
        pending, entries = self.watchers.verify()
        for op in pending.values():
            assert op._op_watched_at != UNPARKED, f"I5: {op!r} is listed but not parked"
            assert op._op_owner is self, f"I5: {op!r} is listed but waits elsewhere"
            keys = op._op_keys
            assert len(set(keys)) == len(keys) > 0, f"I6: {op!r} has the keys {keys!r}"
            for key in keys:
                assert (key, id(op)) in entries, f"I6: {op!r} does not wait under {key!r}"
            # During its last try and its last read, at the deadline, it has already left the timer.
            in_step = op._op_due != NOT_DUE or (id(op) in timed) == (op.timeout is not None)
            assert in_step, f"I6: {op!r} and the timer disagree"
        assert timed <= pending.keys(), "I6: the timer holds operations that wait under no key"
        if self.state == CLOSED and not self.is_ending:
            assert not pending, "I13: closed, and something is pending"
            assert not entries, "I13: closed, and something is listed"
        if self.state != OPEN:
            assert self.alarm._handle is None, "I13: not open, and a call is armed"
        elif self.alarm.until != AWAKE:
            self.alarm.verify(self.deadlines.timer.next_expiration())


def owner_of(op: Operation) -> Core:
    """The core that *op*, which has been watched, waits in."""
    core: Any = op._op_owner  # not cast(), which is a call
    return core  # type: ignore[no-any-return]
