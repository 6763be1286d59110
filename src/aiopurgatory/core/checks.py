"""Checks: when the state behind a key has changed, try the operations waiting under it."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Final

from mypy_extensions import i64

from .bell import NO_CHECK
from .calls import Calls, ReadingOperation
from .deadlines import ClockAlarm
from .endings import attempt
from .loop import Loop
from .observer import Finder
from .operation import COMPLETED, FAILED, PENDING, Operation
from .watchers import ALL, WaitLine, Watchers, listed

#: Stands for every key among those to be checked, and for none.
EVERY_KEY: Final = object()
NO_KEY: Final = object()


class KeyChecks(Calls):
    """Args: budget: seconds that nested checks without effect may take of one loop iteration."""

    def __init__(self, loop: Loop, alarm: ClockAlarm, watchers: Watchers, finder: Finder, budget: float) -> None:
        super().__init__(loop, alarm, watchers)
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
        #: Checks and marks are numbered in their order. The number of the newest, and of the running check.
        self.newest: i64 = 0
        self._number: i64 = 0
        # Keys to check when the running check is through, and on the next iterations; with the limit of each.
        self._nested: OrderedDict[Hashable, int] = OrderedDict()
        self._soon: OrderedDict[Hashable, int] = OrderedDict()
        #: Keys that somebody will mark: until then, an operation that completes at its deadline misses no trigger.
        self.coming: Final[set[Hashable]] = set()
        # What is left of the check that work() makes; its key; and the number of the newest mark of its key, before the
        # check or during it.
        self._steps: Iterator[None] | None = None
        self._soon_key: Hashable = NO_KEY
        self._soon_number: i64 = 0

    def check(self, key: Hashable, entry: Any, limit: int) -> int:
        """Try everything in *entry*, which waits under *key*, or make *limit* calls. Returns: how many that ended.

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

    def check_each(self, keys: tuple[Hashable, ...], limit: int) -> int:
        """Check *keys* as one step: what hooks check meanwhile is checked after all of them. Returns: as check()."""
        self._loop.check_thread()
        for key in keys:
            if self._entry_of(key) is None:
                self.miss(key)
            else:
                self._loop.guarded(mark, self._nested, key, limit)
        return 0 if self._walking else self._check_nested(len(self._nested))

    def check_all(self) -> int:
        self._loop.check_thread()
        return self.check(EVERY_KEY, None, ALL) if self._watchers.pending > 0 else 0

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

    def read_call(self, op: Operation) -> i64:
        """A try of *op* calls for a read. Returns: the number of the check that tries it; NO_CHECK: none does."""
        if self._tried is not op:
            return NO_CHECK
        self._has_effect = True
        return self._number

    def has_work(self) -> bool:
        """Is a key marked, or partly checked?"""
        return bool(self._soon) or bool(self.passed) or self._steps is not None

    def work(self, share: float) -> bool:
        """Check the marked keys for *share* seconds. Returns: whether the current key may have more."""
        turn_time = self._loop.turn_time
        stop = turn_time() + share
        while self.has_work():
            if self._steps is None:
                self._steps = self._next_steps()
            try:
                for _ in self._steps:
                    if turn_time() >= stop:
                        return True
            except CancelledError:
                pass  # an operation's failure: it must not be taken for a cancellation of the clock task (I11)
            self._steps, self._soon_key = None, NO_KEY
            if turn_time() >= stop:
                return True
        return False

    def is_about_to_check(self, op: Operation) -> bool:
        """Is a key of *op* marked, coming, or being checked in slices that may not have reached *op* yet?

        Or has a check with a limit had others read since *op* last did? What it finds may be theirs.
        """
        if EVERY_KEY in self._soon or self._soon_key is EVERY_KEY:
            return True
        reading = op._op_reading if isinstance(op, ReadingOperation) else None
        seen = self.newest if reading is None else reading.seen
        for key in op._op_keys:
            if key in self._soon or key in self.coming:
                return True
            line = self._watchers.by_key.get(key)
            if isinstance(line, WaitLine) and line.newest > seen:
                return True
        if self._soon_key is not NO_KEY and self._soon_key in op._op_keys:  # no key compares itself with that
            return True
        return any(call.key in op._op_keys for call in self.passed)

    def hold(self) -> None:
        """Make no check from now on, until clear()."""
        self._walking = True

    def clear(self) -> None:
        """Drop all marks: nothing waits."""
        self._walking = False
        self._steps, self._soon_key = None, NO_KEY
        self._nested.clear()
        self._soon.clear()
        self.coming.clear()
        self.passed.clear()

    def _check_now(self, key: Hashable, entry: Any, limit: int) -> int:
        """Make a check, which tells of all that has happened until now. Returns: as check()."""
        self.newest += 1
        self._has_effect = False
        if limit == ALL:
            ended = self._walk(key, entry, self.newest, ALL)
        else:
            for _ in self.give(key, self.newest, limit):
                pass
            ended = self.ended
        self.checks += 1
        if not self._has_effect:
            self.without_effect += 1
        return ended

    def _check_nested(self, asked: int = 0) -> int:
        """Make the checks in the queue: the first *asked* of them, and all that hooks have called.

        A chain that ends operations comes to an end. Checks without effect that lead to each other may not: what is
        left of them after the budget is checked on the next iterations.

        Returns: how many operations the first *asked* ended.
        """
        total = 0
        stop = 0.0
        while self._nested:
            key, limit = self._nested.popitem(last=False)
            asked -= 1
            entry = self._entry_of(key)
            if entry is None and key is not EVERY_KEY:
                continue
            ended = self._check_now(key, entry, limit)
            if asked >= 0:
                total += ended
            elif ended > 0:
                stop = 0.0
            elif stop == 0.0:
                stop = self._loop.turn_time() + self._budget
            elif self._nested and self._loop.turn_time() >= stop:
                self._finder.endless(key, entry)
                self._postpone_nested()
        return total

    def _walk(self, key: Hashable, entry: Any, number: i64, limit: int) -> int:
        """Try everything now in *entry*, oldest first: operations added later have seen a later state (I12).

        Checks that hooks call meanwhile are queued. If a hook raises a BaseException, *key* is checked with *limit* on
        the next iterations.

        Args: number: of the check. Returns: how many operations that ended.
        """
        self._walking = True
        self._number = number
        try:
            if entry is not None and not isinstance(entry, WaitLine):
                return self._try_one(key, entry)
            ended = 0
            for op in self._watchers.all_pending() if key is EVERY_KEY else listed(entry):
                ended += self._try_one(key, op)
            return ended
        except BaseException:
            self._postpone(key, limit)
            self._postpone_nested()
            raise
        finally:
            self._walking = False
            self._tried = None

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

    def _postpone(self, key: Hashable, limit: int) -> None:
        if self._watchers.pending > 0:
            self._loop.guarded(self._mark, key, limit)

    def _next_steps(self) -> Iterator[None]:
        """Begin a call that was passed on, or the check of the key that was marked first."""
        if self.passed:
            call = self.passed.popleft()
            self._soon_key = call.key
            return self._make(self.give(call.key, call.number, 1, call.after, call.late), 1, True)
        # Unmarked before it is walked: marked again meanwhile, it is walked once more.
        key, limit = self._soon.popitem(last=False)
        self._soon_key = key
        self.newest += 1
        self._soon_number = self.newest
        looks = self._try_marked(key) if limit == ALL else self.give(key, self.newest, limit)
        return self._make(looks, limit, False)

    def _make(self, looks: Iterator[None], limit: int, has_effect: bool) -> Iterator[None]:
        """Make *looks*, and after each the checks that its hooks have called. *has_effect*: do not count them."""
        is_counted = has_effect
        self._has_effect = False
        for _ in looks:
            if not is_counted:
                is_counted = True
                self.checks += 1
                self.without_effect += 1
            if self._has_effect and not has_effect:
                has_effect = True
                self.without_effect -= 1
            try:
                self._check_nested()
            except BaseException:  # what is left of this check; after a look of its own, _walk() does this
                self._postpone(self._soon_key, limit)
                raise
            self._has_effect = False
            yield

    def _try_marked(self, key: Hashable) -> Iterator[None]:
        # The ids of the operations with several keys. An id may be reused: then the first try of the operation saw a
        # later state.
        met: set[int] = set()
        for op in self.listed_in_slices(key):
            if key is EVERY_KEY and len(op._op_keys) > 1:
                if id(op) in met:
                    continue
                met.add(id(op))
            self._walk(key, op, self._soon_number, ALL)
            yield

    def listed_in_slices(self, key: Hashable) -> Iterator[Operation]:
        """List the operations under *key*, or under every key, in slices (I8)."""
        watchers = self._watchers
        for entries in watchers.in_slices(watchers.by_key) if key is EVERY_KEY else ([(key, self._entry_of(key))],):
            for _, entry in entries:
                for ops in watchers.ops_in_slices(entry):
                    yield from ops

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
