"""The purgatory's rules: who is parked, who is asked when, and what one turn of the clock task does.

Everything here is synchronous. What belongs to an event loop (its time, waking a task, sleeping) is handed in.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any, Final, SupportsFloat, TypeVar

from mypy_extensions import mypyc_attr

from ..errors import PurgatoryClosedError
from ..timer import Timer
from ..timer.delay_queue import NEVER
from .checks import EVERY_KEY, check
from .endings import CANCELLED, FAILED, begin_end, expire, for_each, is_parked, settle, settle_cancelled
from .moments import rounded_down, timeout_seconds
from .observer import Observer
from .operation import Operation
from .parking import arm, park
from .turns import begin_purge, check_soon, expire_due, purge_some, report_failures
from .watchers import Watchers

OpT = TypeVar("OpT", bound=Operation)

#: What a clock is armed for while it is awake: nothing is earlier.
AWAKE: Final = -NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class Rules:
    """What Purgatory does without a loop; see there.

    Only the entry points are methods. What they share are functions, in parking, checks and turns: a method of a class
    that interpreted code subclasses is looked up by name at each call, even from compiled code.
    """

    # Without a __dict__ to look into first, Python 3.13 calls the entry points quicker: a check by a fifth.
    __slots__ = (
        "_armed",
        "_call_exception_handler",
        "_call_soon",
        "_cancelled",
        "_checks",
        "_checks_in_vain",
        "_completed",
        "_debug",
        "_done",
        "_estimated_total",
        "_expire_again",
        "_expired",
        "_expiring",
        "_failed",
        "_failures",
        "_get_ident",
        "_is_running",
        "_longest_turn",
        "_loop",
        "_max_pending",
        "_missed_triggers",
        "_name",
        "_nested",
        "_observers",
        "_open",
        "_pending",
        "_purge_interval",
        "_purge_key",
        "_purge_keys",
        "_purge_ops",
        "_purge_wanted",
        "_purged",
        "_purges",
        "_refused",
        "_soon",
        "_thread_ident",
        "_tick_ns",
        "_time",
        "_timer",
        "_turn_budget",
        "_turn_time",
        "_undelivered",
        "_walk_counts",
        "_walk_ended",
        "_walk_key",
        "_walk_ops",
        "_walking",
        "_watchers",
        "_wheel_size",
    )

    def __init__(
        self,
        name: str,
        tick_ns: int,
        wheel_size: int,
        purge_interval: int,
        max_pending: int | None,
        turn_budget: float,
        observers: tuple[Observer, ...],
    ) -> None:
        self._name = name
        self._tick_ns = tick_ns
        self._wheel_size = wheel_size
        self._timer = Timer(tick_ns, wheel_size)
        self._watchers = Watchers()
        self._purge_interval = purge_interval
        self._max_pending = max_pending
        self._turn_budget = turn_budget
        self._observers = observers
        # handed in by _open_on()
        self._open = False
        self._debug = False
        self._loop: Any = None
        self._is_running: Callable[[], bool] = bool
        self._get_ident: Callable[[], int] = int
        self._thread_ident = 0
        self._time: Callable[[], float] = float
        self._turn_time: Callable[[], float] = float
        self._call_soon: Any = None
        self._done: Any = None  # a future of the loop that is done
        self._call_exception_handler: Callable[[dict[str, object]], object] = dict
        # Gauges and counters: they move in begin_end() and settle() only, but for the way in (I5).
        self._pending = 0
        self._completed = 0
        self._expired = 0
        self._cancelled = 0
        self._failed = 0
        # Counters of other things.
        self._missed_triggers = 0
        self._refused = 0
        self._undelivered = 0
        self._checks = 0
        self._checks_in_vain = 0
        self._purges = 0
        self._purged = 0
        self._longest_turn = 0.0
        self._estimated_total = 0
        # A clock that sleeps wakes by then (I4).
        self._armed = AWAKE
        self._walking = False
        self._expiring = False
        self._expire_again = False
        self._nested: OrderedDict[Hashable, None] = OrderedDict()
        self._soon: OrderedDict[Hashable, None] = OrderedDict()
        self._walk_key: Hashable = None  # the key that ..._soon is at
        self._walk_counts = False  # it is a check that has yet to be counted
        self._walk_ended = 0
        self._walk_ops: list[Operation] = []  # who waits under it and is not asked yet; the next one last
        self._purge_wanted = False
        self._purge_keys: list[Hashable] = []
        self._purge_key: Hashable = None
        self._purge_ops: list[Operation] = []
        self._failures: deque[Operation] = deque()

    # entry points

    def watch(self, op: OpT, keys: Iterable[Hashable]) -> OpT:
        """try_complete_else_watch(), and hand *op* back: ``result = await purgatory.watch(op, keys)``.

        It is registered when this returns, awaited or not.
        """
        park(self, op, keys)
        return op

    def try_complete_else_watch(self, op: Operation, keys: Iterable[Hashable]) -> bool:
        """End *op* if its condition holds, else park it under every one of *keys* until it does or its time is up.

        No event can be missed: *op* is tried, registered, and tried again.

        Args:
            op: not watched before.
            keys: at least one hashable; one given twice counts once.

        Returns: True iff this call ended it.

        Raises (and then *op* is untouched, and may be watched later):
            TypeError: *keys* is no iterable of hashables, or a bare str or bytes.
            ValueError: *keys* is empty.
            RuntimeError: *op* was watched before; or the purgatory is not started, or in another event loop or process.
            PurgatoryClosedError: it is closed.
            PurgatoryFullError: *op* would have to park, and max_pending operations are.

        Cost: two try_complete(), O(1) per key, O(levels) for the timeout. Invariants: I1, I4, I12, I15.
        Source: Kafka DelayedOperationPurgatory.tryCompleteElseWatch.
        """
        return park(self, op, keys)

    def check_and_complete(self, key: Hashable) -> int:
        """Something happened to *key*: try every operation that waits under it now, oldest first, before returning.

        Called from inside a hook that such a call runs, it is put off until that call is through, and returns 0 (I7).

        Returns: how many of them that ended, completed or failed; 0 for a key that nobody watches.

        Cost: one dict look-up if nobody waits, else a try_complete() for each who does. Invariants: I7, I11, I12.
        Source: Kafka DelayedOperationPurgatory.checkAndComplete; differs: what one operation raises ends it alone.
        """
        entry = self._watchers.get(key)
        if entry is None:
            return 0
        return check(self, key, entry)

    def check_and_complete_soon(self, key: Hashable) -> None:
        """check_and_complete() on the next turn of the loop, in slices of turn_budget: for hot keys.

        A key marked many times before its turn is checked once; marked again while it is worked off, once more (I8).
        """
        if self._debug:
            self._check_thread()
        if key in self._watchers:
            self._soon[key] = None
            self._wake_clock()

    def check_all(self) -> int:
        """check_and_complete() for every key, each operation once: after notifications may have been lost."""
        return check(self, EVERY_KEY, None, self._pending > 0)

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Cancel every operation that waits under *key*. Returns: those, in the order in which they were watched."""
        if self._debug:
            self._check_thread()
        ops = [op for op in self._watchers.waiting(key) if op._op_outcome is None]
        for op in ops:  # atomic: no await. All of them first: an on_cancel() that calls this again finds nobody
            begin_end(op, CANCELLED, True)
        return for_each(ops, settle_cancelled)

    def reschedule(self, op: Operation, timeout: SupportsFloat | None) -> bool:
        """Give the watched *op* a new timeout, from now. Inside its last try_complete() that puts the expiry off.

        Args: timeout: seconds >= 0, or None for no deadline.
        Returns: False if it has ended.
        Raises: TypeError, ValueError: as in DelayedOperation; ValueError: *op* is not watched here.
        Cost: O(levels).
        """
        seconds = timeout_seconds(timeout)
        if op._op_outcome is not None:
            return False
        if op._op_owner is not self:
            raise ValueError(f"op must be watched by this purgatory, got {op!r}")
        if self._debug:
            self._check_thread()
        # atomic: no await
        op._op_timeout = seconds
        op._op_due = False
        if is_parked(op):
            self._timer.cancel(op)
            arm(self, op, self._time())
        return True

    def expire_all(self) -> int:
        """Answer everybody now as if their time had come: the one exception to I1. Returns: how many ended."""
        if self._debug:
            self._check_thread()
        if self._expiring:  # called by a hook that it runs: once more, when it is through (I7)
            self._expire_again = True
            return 0
        self._expiring = self._expire_again = True
        ended = 0
        try:
            while self._expire_again:
                self._expire_again = False
                ended += len(for_each(self._watchers.pending(), expire_now))
        finally:
            self._expiring = False
        return ended

    def purge(self) -> int:
        """Drop the entries that ended operations have left under other keys, now. Returns: how many entries."""
        if self._debug:
            self._check_thread()
        begin_purge(self)
        before = self._watchers.entries
        purge_some(self, inf)
        return before - self._watchers.entries

    @property
    def num_delayed(self) -> int:
        """Operations that wait now."""
        return self._pending

    @property
    def watched(self) -> int:
        """Watch entries: one per operation and key; those of ended operations count until they are purged."""
        return self._watchers.entries

    # for the face

    def _open_on(
        self, loop: Any, time: Callable[[], float], turn_time: Callable[[], float], get_ident: Callable[[], int]
    ) -> None:
        """Belong to *loop* and this thread from now on. *turn_time* measures turns, whatever *time* is."""
        self._loop = loop
        self._call_soon = loop.call_soon
        self._done = loop.create_future()
        self._done.set_result(None)
        self._call_exception_handler = loop.call_exception_handler
        self._debug = loop.get_debug()
        self._time = time
        self._turn_time = turn_time
        self._is_running = loop.is_running
        self._get_ident = get_ident
        self._thread_ident = get_ident()
        self._timer = Timer(self._tick_ns, self._wheel_size, rounded_down(time()))
        self._open = True

    def _turn(self) -> bool:
        """One turn of the clock task: work off what is due, for turn_budget at most (I8). True: there is more now."""
        begin = self._turn_time()
        jobs = 1 + bool(self._soon or self._walk_ops) + bool(self._purge_wanted or self._purge_keys or self._purge_ops)
        share = self._turn_budget / jobs
        more = expire_due(self, share)
        more = check_soon(self, share) or more
        more = purge_some(self, share) or more
        self._longest_turn = max(self._longest_turn, self._turn_time() - begin)
        return more or bool(self._soon)

    def _close(self) -> None:
        """Refuse everything from now on, and end what is pending (I13)."""
        self._open = False
        pending = self._watchers.pending()
        for op in pending:  # atomic: no await. All of them, before anybody is told of one
            begin_end(op, FAILED, True)
        self._watchers = Watchers()  # stale entries, if purging is deferred
        self._estimated_total = 0
        self._purge_wanted = False
        self._purge_keys.clear()
        self._purge_ops.clear()
        self._walk_ops.clear()
        self._nested.clear()
        self._soon.clear()
        try:
            for_each(pending, settle_closed)
        finally:
            report_failures(self, inf)

    def _schedule_purge_if_due(self) -> None:
        """Kafka's rule: more than purge_interval operations have ended since the last sweep, by the estimate."""
        if self._estimated_total - self._pending > self._purge_interval:
            self._estimated_total = self._pending
            self._purge_wanted = True
            self._wake_clock()

    def _report_failure_later(self, op: Operation) -> None:
        """On the turn after: somebody may await it yet. Not by the clock task, whose turn may be still to come."""
        self._failures.append(op)
        if not self._open:
            report_failures(self, inf)
        elif len(self._failures) == 1:
            self._call_soon(self._report_failures)

    def _report_failures(self) -> None:
        if report_failures(self, self._turn_budget):
            self._call_soon(self._report_failures)

    def _check_thread(self) -> None:
        """In asyncio's debug mode: refuse a call from another thread (I15)."""
        if self._get_ident() != self._thread_ident and self._is_running():
            raise RuntimeError(
                f"purgatory {self._name!r} was called from outside its event loop; "
                "from other threads use check_and_complete_threadsafe()"
            )

    # the face overrides these three

    def _wake_clock(self) -> None:
        """Have _turn() called on the next turn of the loop."""

    def _arm_clock(self) -> None:
        """Have _turn() called by the timer's next expiration (I4)."""

    def _refusal(self) -> Exception:
        """Why nothing can be watched now."""
        return PurgatoryClosedError(f"purgatory {self._name!r} is not open")


def expire_now(op: Operation) -> bool:
    rules = op._op_owner
    if rules is None or op._op_outcome is not None or op._op_due:  # _op_due: being asked further up, it expires there
        return False
    rules._timer.cancel(op)
    return expire(op)


def settle_closed(op: Operation) -> bool:
    name = "" if op._op_owner is None else op._op_owner._name
    op._op_retrieved = True  # who closes it knows; the loop's exception handler need not hear of each
    settle(op, FAILED, PurgatoryClosedError(f"purgatory {name!r} was closed"), True)
    return True
