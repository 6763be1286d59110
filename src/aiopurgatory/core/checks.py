"""Checks: when the state behind a key has changed, try the operations waiting under it."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, cast

from mypy_extensions import i64

from .deadlines import ClockAlarm
from .endings import attempt
from .loop import Loop
from .observer import Finder
from .operation import COMPLETED, FAILED, PENDING, Operation
from .watchers import ALL, Watchers, listed

#: Stands for every key among those to be checked.
EVERY_KEY: Final = object()
#: The number of no check: newer than any.
NO_CHECK: Final = ALL
#: Waiters that a check with a limit copies at first: waking one must not cost a copy of the whole list.
FIRST_SLICE: Final = 16


class KeyChecks:
    """Args: budget: seconds that nested checks without effect may take of one loop iteration."""

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
        # The operation that the running check tries; and whether that check has ended one, or called for a read.
        self._tried: Operation | None = None
        self._has_effect = False
        # The key of the running check if that has a limit, else EVERY_KEY; and the reads that count for the limit.
        self._limited: Hashable = EVERY_KEY
        self._called = 0
        #: Checks and marks are numbered in their order. The number of the newest, and that of the running check.
        self.newest: i64 = 0
        self._number: i64 = 0
        # Keys to check when the running check is through, and on the next iterations; with the limit of each.
        self._nested: OrderedDict[Hashable, int] = OrderedDict()
        self._soon: OrderedDict[Hashable, int] = OrderedDict()
        #: Keys that somebody will mark: until then, an operation that completes at its deadline misses no trigger.
        self.coming: Final[set[Hashable]] = set()
        # What is left of the check that work() makes; its key; and its number: that of the newest mark of its key,
        # before the check or during it.
        self._steps: Iterator[None] | None = None
        self._soon_key: Hashable = None
        self._soon_number: i64 = 0

    def check(self, key: Hashable, entry: object, limit: int) -> int:
        """Try everything in *entry*, which waits under *key*, until *limit* have ended. Returns: how many that ended.

        A check from inside a check is queued and run when this one is finished: a chain of any length neither recurses
        nor loses a link (I7). Queued twice, it is run once, after the later call; the limits add up.
        """
        self._loop.check_thread()
        if self._walking:
            mark(self._nested, key, limit)
            return 0
        ended = self._check_now(key, entry, limit)
        if self._nested:
            self._check_nested()
        return ended

    def check_all(self) -> int:
        if self._watchers.pending > 0:
            return self.check(EVERY_KEY, None, ALL)
        self._loop.check_thread()
        return 0

    def mark(self, key: Hashable, limit: int) -> None:
        """Check *key*, or every key, on the next iterations."""
        self._loop.check_thread()
        is_every = key is EVERY_KEY
        if self._watchers.pending > 0 if is_every else self._watchers.entry_of(key) is not None:
            self._mark(key, limit)
        elif not is_every:
            self.miss(key)

    def miss(self, key: Hashable) -> None:
        """Nothing watches *key*, which is checked. That may be a mistake."""
        self._until_told -= 1
        if self._until_told <= 0:
            self._until_told = self._finder.unwatched(key)

    def has_work(self) -> bool:
        """Is a key marked, or partly checked?"""
        return bool(self._soon) or self._steps is not None

    def work(self, share: float) -> bool:
        """Check the marked keys for *share* seconds. Returns: whether the current key may have more."""
        turn_time = self._loop.turn_time
        stop = turn_time() + share
        while self.has_work():
            if self._steps is None:
                self._steps = self._check_marked()
            try:
                for _ in self._steps:
                    if turn_time() >= stop:
                        return True
            except BaseException:
                self._postpone(self._soon_key, ALL)  # what is left of it
                raise
            self._steps = self._soon_key = None
            if turn_time() >= stop:
                return True
        return False

    def is_about_to_check(self, op: Operation) -> bool:
        """Is a key of *op* marked, coming, or being checked in slices that may not have reached *op* yet?"""
        is_working = self._steps is not None
        if EVERY_KEY in self._soon or (is_working and self._soon_key is EVERY_KEY):
            return True
        for key in op._op_keys:
            if key in self._soon or key in self.coming:
                return True
        return is_working and self._soon_key in op._op_keys

    def clear(self) -> None:
        """Drop all marks: nothing waits."""
        self._steps = self._soon_key = None
        self._nested.clear()
        self._soon.clear()
        self.coming.clear()

    def _check_now(self, key: Hashable, entry: object, limit: int) -> int:
        """Make a check, which tells of all that has happened until now. Returns: as check()."""
        self.newest += 1
        self._number = self.newest
        self._has_effect = False
        ended = self._walk(key, entry, limit)
        self.checks += 1
        if not self._has_effect:
            self.without_effect += 1
        return ended

    def _check_nested(self) -> None:
        """Make the checks that hooks of the last check have called.

        A chain that ends operations comes to an end. Checks without effect that lead to each other may not: what is
        left of them after the budget is checked on the next iterations.
        """
        stop = 0.0
        while self._nested:
            key, limit = self._nested.popitem(last=False)
            entry = self._entry_of(key)
            if entry is None and key is not EVERY_KEY:
                continue
            if self._check_now(key, entry, limit) > 0:
                stop = 0.0
            elif stop == 0.0:
                stop = self._loop.turn_time() + self._budget
            elif self._nested and self._loop.turn_time() >= stop:
                self._finder.endless(key, entry)
                self._postpone_nested()

    def _walk(self, key: Hashable, entry: object, limit: int) -> int:
        """Try everything in *entry*, and queue the checks that hooks call meanwhile. Returns: how many that ended.

        If a hook raises a BaseException, the rest is checked on the next iterations.
        """
        self._walking = True
        try:
            return self._try_all(key, entry, limit)
        except BaseException:
            self._postpone(key, limit)
            self._postpone_nested()
            raise
        finally:
            self._walking = False
            self._tried = None
            self._limited = EVERY_KEY

    def _postpone_nested(self) -> None:
        while self._nested:
            key, limit = self._nested.popitem(last=False)
            self._postpone(key, limit)

    def _mark(self, key: Hashable, limit: int) -> None:
        mark(self._soon, key, limit)
        self._alarm.wake()
        self.newest += 1
        # Not ==, which is the user's code: of two keys with one hash, the wrong one does no harm.
        if self._soon_key is EVERY_KEY or key is EVERY_KEY or hash(key) == hash(self._soon_key):
            self._soon_number = self.newest

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

    def _check_marked(self) -> Iterator[None]:
        """Check the key that was marked first. Yields between any two operations."""
        # Unmarked before it is walked: marked again meanwhile, it is walked once more.
        key, limit = self._soon.popitem(last=False)
        self._soon_key = key
        self.newest += 1
        self._soon_number = self.newest
        # Key by key: listing a million operations at once would block the loop (I8).
        keys = list(self._watchers.by_key) if key is EVERY_KEY else [key]
        # The ids of the operations with several keys. An id may be reused: then the first try of the operation saw a
        # later state.
        met: set[int] = set()
        ended = 0
        is_counted = has_effect = False
        for number, each in enumerate(keys):
            if number > 0:
                yield
            for place, op in enumerate(listed(self._entry_of(each))):
                if place > 0:
                    yield
                if not is_counted:
                    is_counted = True
                    self.checks += 1
                    self.without_effect += 1
                if key is EVERY_KEY and len(op._op_keys) > 1:
                    if id(op) in met:
                        continue
                    met.add(id(op))
                self._number = self._soon_number
                self._has_effect = False
                self._limited = EVERY_KEY if limit == ALL else key
                self._called = 0
                try:
                    ended += self._walk(key, op, ALL)
                    ended += self._called
                    if self._has_effect and not has_effect:
                        has_effect = True
                        self.without_effect -= 1
                    self._check_nested()
                except CancelledError:
                    pass  # an operation's failure: it must not be taken for a cancellation of the clock task (I11)
                if ended >= limit:
                    break

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
        self._limited = key
        ended = self._called = 0
        tried: set[int] = set()
        for most in (limit + FIRST_SLICE, ALL):
            for op in listed(entry, most):
                if ended + self._called >= limit:
                    return ended
                if id(op) not in tried:
                    tried.add(id(op))
                    ended += self._try_one(key, op)
            entry = self._entry_of(key)
        return ended

    def _try_one(self, key: Hashable, op: Operation) -> int:
        """Try *op*, waiting under *key*, unless it has ended. Returns: 1 if this ended it, else 0."""
        if op._op_state != PENDING:
            return 0
        if op._op_trying:  # by its deadline or by watch(): a try inside that try could take a second result
            self._postpone(op._op_keys[0] if key is EVERY_KEY else key, ALL)
            return 0
        self._tried = op
        state = attempt(op)
        if state == COMPLETED or state == FAILED:  # noqa: SIM109 a tuple is slower, compiled
            self._has_effect = True
            return 1
        return 0


def mark(marked: OrderedDict[Hashable, int], key: Hashable, limit: int) -> None:
    """Add *key* to *marked*; the limits of one key add up."""
    before = marked.get(key, 0)
    marked[key] = min(before + limit, ALL) if before != ALL else ALL
