"""Checks: when the state behind a key has changed, try the operations waiting under it."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections import OrderedDict
from collections.abc import Hashable
from sys import maxsize
from typing import Final, cast

from mypy_extensions import i64

from .deadlines import ClockAlarm
from .endings import attempt
from .loop import Loop
from .observer import Finder
from .operation import COMPLETED, FAILED, PENDING, Operation
from .watchers import Watchers, listed, oldest

#: Stands for every key among those to be checked.
EVERY_KEY: Final = object()
#: The limit of a check without a limit.
ALL: Final = maxsize
#: The number of no check: newer than any.
NO_CHECK: Final = maxsize
#: Waiters that a check with a limit copies at first: waking one must not cost a copy of the whole list.
FIRST_SLICE: Final = 16


class KeyChecks:
    """Args: budget: seconds that nested checks without effect may take of one loop iteration."""

    __slots__ = (
        "_alarm",
        "_budget",
        "_called",
        "_finder",
        "_limited",
        "_loop",
        "_met",
        "_nested",
        "_newest",
        "_number",
        "_soon",
        "_soon_ended",
        "_soon_had_effect",
        "_soon_key",
        "_soon_keys",
        "_soon_limit",
        "_soon_number",
        "_soon_ops",
        "_tried",
        "_uncounted",
        "_until_told",
        "_walking",
        "_watchers",
        "_woke",
        "checks",
        "without_effect",
    )

    def __init__(self, loop: Loop, alarm: ClockAlarm, watchers: Watchers, finder: Finder, budget: float) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self._watchers: Final = watchers
        self._finder: Final = finder
        self._budget: Final = budget
        #: Checks of a watched key; and how many of them neither ended nor woke anything.
        self.checks = 0
        self.without_effect = 0
        # How many more checks of unwatched keys until the finder hears of one.
        self._until_told: i64 = 1
        self._walking = False
        # The operation that the running check tries; and whether that check has woken an awaited one.
        self._tried: Operation | None = None
        self._woke = False
        # The key of the running check if that has a limit, else EVERY_KEY; and the reads that count for the limit.
        self._limited: Hashable = EVERY_KEY
        self._called = 0
        # Checks and marks are numbered in their order. The number of the newest, and that of the running check.
        self._newest: i64 = 0
        self._number: i64 = 0
        # Keys to check when the running check is through, and on the next iterations; with the limit of each.
        self._nested: OrderedDict[Hashable, int] = OrderedDict()
        self._soon: OrderedDict[Hashable, int] = OrderedDict()
        # The key that work() is checking, and its operations not tried yet, the next one last.
        self._soon_key: Hashable = None
        self._soon_ops: list[Operation] = []
        # If that is EVERY_KEY: the keys not listed yet, the next one last; and the ids of the operations with several
        # keys that were already tried.
        self._soon_keys: list[Hashable] = []
        self._met: set[int] = set()
        self._soon_limit = ALL
        self._soon_ended = 0
        self._soon_had_effect = False
        # The number of the check that work() makes: that of the newest mark of its key, before the check or during it.
        self._soon_number: i64 = 0
        self._uncounted = False

    def check(self, key: Hashable, entry: object, limit: int, counted: bool = True) -> int:
        """Try everything in *entry*, which waits under *key*, until *limit* have ended. Returns: how many that ended.

        A check from inside a check is queued and run when this one is finished: a chain of any length neither recurses
        nor loses a link (I7). Queued twice, it is run once, after the later call; the limits add up.
        """
        self._loop.check_thread()
        if self._walking:
            mark(self._nested, key, limit)
            return 0
        self._walking = True
        try:
            if counted:
                self._begin()
            else:
                self._number = self._soon_number
            ended = self._try_all(key, entry, limit)
            if counted:
                self._count(ended > 0)
            else:
                self._soon_had_effect = self._soon_had_effect or ended > 0 or self._woke
                self._woke = False
            if self._nested:
                self._check_nested()
        except BaseException:
            # Check the rest later.
            self._postpone(key, limit)
            self._postpone_nested()
            self._woke = False
            raise
        finally:
            self._walking = False
            self._tried = None
        return ended

    def check_all(self) -> int:
        if self._watchers.pending > 0:
            return self.check(EVERY_KEY, None, ALL)
        self._loop.check_thread()
        return 0

    def mark(self, key: Hashable, limit: int) -> None:
        """Check *key* on the next iteration."""
        self._loop.check_thread()
        if self._watchers.entry_of(key) is not None:
            self._mark(key, limit)
        else:
            self.miss(key)

    def miss(self, key: Hashable) -> None:
        """Nothing watches *key*, which is checked. That may be a mistake."""
        self._until_told -= 1
        if self._until_told <= 0:
            self._until_told = self._finder.unwatched(key)

    def mark_all(self) -> None:
        """Check every key on the next iterations."""
        self._loop.check_thread()
        if self._watchers.pending > 0:
            self._mark(EVERY_KEY, ALL)

    def has_work(self) -> bool:
        """Is a key marked, or partly checked?"""
        return bool(self._soon) or bool(self._soon_ops) or bool(self._soon_keys)

    def work(self, share: float) -> bool:
        """Check the marked keys for *share* seconds. Returns: whether the current key may have more."""
        turn_time = self._loop.turn_time
        stop = turn_time() + share
        while self._step():
            if turn_time() >= stop:
                return True
        return False

    def is_about_to_check(self, op: Operation) -> bool:
        """Is a key of *op* marked, or being checked in slices that may not have reached *op* yet?"""
        keys = op._op_keys
        if EVERY_KEY in self._soon:
            return True
        for key in keys:
            if key in self._soon:
                return True
        if self._soon_key is EVERY_KEY:
            return bool(self._soon_ops) or bool(self._soon_keys)
        return bool(self._soon_ops) and self._soon_key in keys

    def clear(self) -> None:
        """Drop all marks: nothing waits."""
        self._soon_ops.clear()
        self._soon_keys.clear()
        self._nested.clear()
        self._soon.clear()
        self._end_last()

    def call_for_read(self, op: Operation) -> int:
        """Called while *op* is tried, which is to read again. If a check tries it, that check has an effect.

        Returns: the number of the check, or NO_CHECK. A read that began after a check with that number, or with a
        greater one, sees the change that caused this check.
        """
        if self._tried is not op:
            return NO_CHECK
        self._woke = True
        return self._number

    def take_limited(self) -> Hashable:
        """Called like call_for_read(), by what ends with the first value. A read that finds none must pass the call on.

        Returns: the key of the check if that has a limit, for which the read counts; else EVERY_KEY.
        """
        if self._limited is not EVERY_KEY:
            self._called += 1
        return self._limited

    def newest(self) -> int:
        """The number of the newest check or mark."""
        return self._newest

    def next_number(self) -> int:
        """A number for a change that no check announced."""
        self._newest += 1
        return self._newest

    def _count(self, ended: bool) -> None:
        """Count the running check, which is through."""
        self.checks += 1
        if not ended and not self._woke:
            self.without_effect += 1
        self._woke = False

    def _check_nested(self) -> None:
        """Make the checks that hooks of the running check have called.

        A chain that ends operations comes to an end. Checks without effect that lead to each other may not: what is
        left of them after the budget is checked on the next iterations.
        """
        stop = 0.0
        called, self._limited = self._called, EVERY_KEY
        while self._nested:
            key, limit = self._nested.popitem(last=False)
            entry = self._entry_of(key)
            if entry is None and key is not EVERY_KEY:
                continue
            self._begin()
            try:
                ended = self._try_all(key, entry, limit)
            except BaseException:
                self._postpone(key, limit)
                raise
            self._count(ended > 0)
            if ended > 0:
                stop = 0.0
            elif stop == 0.0:
                stop = self._loop.turn_time() + self._budget
            elif self._nested and self._loop.turn_time() >= stop:
                self._finder.endless(key, entry)
                self._postpone_nested()
        self._called = called

    def _postpone_nested(self) -> None:
        while self._nested:
            key, limit = self._nested.popitem(last=False)
            self._postpone(key, limit)

    def _begin(self) -> None:
        """A check begins, which tells of all that has happened until now."""
        self._newest += 1
        self._number = self._newest

    def _mark(self, key: Hashable, limit: int) -> None:
        mark(self._soon, key, limit)
        self._alarm.wake()
        self._newest += 1
        # Not ==, which is the user's code: of two keys with one hash, the wrong one does no harm.
        if self._soon_key is EVERY_KEY or key is EVERY_KEY or hash(key) == hash(self._soon_key):
            self._soon_number = self._newest

    # A key's __eq__ is the user's code. If it raises, that must not end a check or the clock task (I11).

    def _postpone(self, key: Hashable, limit: int) -> None:
        try:
            self._mark(key, limit)
        except (Exception, CancelledError) as exc:
            self._loop.report(None, exc, "a key cannot be compared")

    def _entry_of(self, key: Hashable) -> object:
        try:
            return self._watchers.by_key.get(key)
        except (Exception, CancelledError) as exc:
            self._loop.report(None, exc, "a key cannot be compared")
            return None

    def _step(self) -> bool:
        """Try the next operation under a marked key. Returns: False if there was nothing to do."""
        if not self._soon_ops and not self._begin_next():
            return False
        if self._soon_ops:
            op = self._soon_ops.pop()
            if self._soon_key is not EVERY_KEY or not self._was_met(op):
                self._limited = EVERY_KEY if self._soon_limit == ALL else self._soon_key
                self._called = 0
                try:
                    self._soon_ended += self.check(self._soon_key, op, ALL, False)
                except CancelledError:
                    pass  # an operation's failure: it must not be taken for a cancellation of the clock task (I11)
                finally:
                    self._soon_ended += self._called
                    self._limited = EVERY_KEY
            if self._soon_ended >= self._soon_limit:
                self._soon_ops.clear()
        return True

    def _begin_next(self) -> bool:
        """List the operations of the next key. Returns: False if there is none."""
        if self._soon_keys:
            self._soon_ops = listed(self._entry_of(self._soon_keys.pop()))
        else:
            self._end_last()
            if not self._soon:
                return False
            # Unmarked before it is walked: marked again meanwhile, it is walked once more.
            self._soon_key, self._soon_limit = self._soon.popitem(last=False)
            self._newest += 1
            self._soon_number = self._newest
            if self._soon_key is EVERY_KEY:
                # Key by key: listing a million operations at once would block the loop (I8).
                self._soon_keys = list(self._watchers.by_key)
                self._soon_keys.reverse()
                self._uncounted = self._watchers.pending > 0
            else:
                self._soon_ops = listed(self._entry_of(self._soon_key))
                self._uncounted = bool(self._soon_ops)
        self._soon_ops.reverse()
        return True

    def _end_last(self) -> None:
        """Finish the check that _begin_next() began."""
        if self._uncounted:
            self._uncounted = False
            self._count(self._soon_had_effect)
        self._soon_key, self._soon_ended, self._soon_had_effect = None, 0, False
        self._met.clear()

    def _was_met(self, op: Operation) -> bool:
        """Has the check of every key tried *op* under another key?

        An id may be reused. Then *op* came after the call of mark_all(), and its first try saw a later state.
        """
        if len(op._op_keys) == 1:
            return False
        before = len(self._met)
        self._met.add(id(op))
        return len(self._met) == before

    def _try_all(self, key: Hashable, entry: object, limit: int) -> int:
        """Try the operations now in *entry*, oldest first: those added later have seen a later state (I12)."""
        if entry is not None and not isinstance(entry, dict):
            return self._try_one(key, cast(Operation, entry))
        if limit < ALL - FIRST_SLICE:
            return self._try_some(key, entry, limit)
        ended = 0
        for op in self._watchers.all_pending() if key is EVERY_KEY else listed(entry):
            ended += self._try_one(key, op)
        return ended

    def _try_some(self, key: Hashable, entry: object, limit: int) -> int:
        ended = self._called = 0
        tried: set[int] = set()
        for ops in (oldest(entry, limit + FIRST_SLICE), listed(entry)):
            for op in ops:
                if ended + self._called >= limit:
                    return ended
                if id(op) not in tried:
                    tried.add(id(op))
                    self._limited = key
                    try:
                        ended += self._try_one(key, op)
                    finally:
                        self._limited = EVERY_KEY
            entry = self._entry_of(key)
        return ended

    def _try_one(self, key: Hashable, op: Operation) -> int:
        """Try *op*, waiting under *key*, unless it has ended. Returns: 1 if this ended it, else 0."""
        if op._op_state == PENDING:
            if op._op_trying:  # by its deadline or by watch(): a try inside that try could take a second result
                self._postpone(op._op_keys[0] if key is EVERY_KEY else key, ALL)
                return 0
            self._tried = op
            state = attempt(op)
            return 1 if state == COMPLETED or state == FAILED else 0  # noqa: SIM109 a tuple is slower, compiled
        return 0


def mark(marked: OrderedDict[Hashable, int], key: Hashable, limit: int) -> None:
    """Add *key* to *marked*; the limits of one key add up."""
    before = marked.get(key, 0)
    marked[key] = min(before + limit, ALL) if before != ALL else ALL
