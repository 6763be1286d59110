"""Watchers: the operations waiting under each key, and how many are pending."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from itertools import islice
from operator import neg
from typing import Any, Final, final

from mypy_extensions import i64

from ..arguments import require_hashable, require_items, unhashable
from .operation import PENDING, Operation

#: No limit. (Larger integers are objects in compiled code, and each comparison converts them.)
ALL: Final = 1 << 60
#: Entries that are listed in one piece, between two readings of the clock.
SLICE: Final = 2_000
#: Operations that a check with a limit lists at first: waking one must not cost a list of all.
FEW: Final = 256


@final
class WaitLine:
    """The operations under a key that more than one waits for, by number: in order of arrival (I12).

    For calls (see calls), it also knows which of them can look. Only numbers are kept for that, so that nothing of an
    ended operation stays (I6).
    """

    __slots__ = ("_able", "_listed", "late", "newest", "ops", "owed")

    def __init__(self) -> None:
        self.ops: dict[int, Operation] = {}
        #: The numbers of operations that can look, the oldest last. Gone ones are dropped where they are met.
        self._able: list[int] = []
        #: The newest number that was ever listed there.
        self._listed = 0
        #: The number of the newest call; how many operations were busy then and can look again; and the numbers of the
        #: calls for which all were busy.
        self.newest: i64 = 0
        self.late = 0
        self.owed: list[i64] = []

    def next(self, after: int) -> Operation | None:
        """Return the oldest operation that can look, of those behind the number *after*. Cost: O(1), amortized."""
        able = self._able
        while True:
            place = bisect_left(able, -after, key=neg) if after > 0 else len(able)
            while place > 0:
                place -= 1
                op = self.ops.get(able[place])
                if op is not None and op._op_state == PENDING:
                    return op
                del able[place]
            if not self._list_more():
                return None

    def _list_more(self) -> bool:
        """List some of the later arrivals: all, or as many as had to be passed over, so that each costs O(1)."""
        more: list[int] = []
        oldest = iter(self.ops)
        for newest in reversed(self.ops):
            if newest <= self._listed:
                break
            number = next(oldest)
            if number > self._listed:
                more = [number, *islice(oldest, max(FEW, len(more)))]
                more.reverse()
                break
            more.append(newest)
        if more:
            self._listed = more[0]
            self._able[:0] = more
        return bool(more)

    def take(self, number: int) -> None:
        """The operation with this *number*, which next() has returned, cannot look any more."""
        del self._able[bisect_left(self._able, -number, key=neg)]

    def put_back(self, number: int) -> bool:
        """The operation with this *number* can look again. Returns: whether it had been taken."""
        place = bisect_left(self._able, -number, key=neg)
        if number > self._listed or self._able[place : place + 1] == [number]:
            return False
        self._able.insert(place, number)
        return True

    def owe(self, number: i64, count: int) -> None:
        """Note *count* calls with this *number* for which all were busy: the newest are enough, one for each waiter."""
        for _ in range(min(count, len(self.ops))):
            insort(self.owed, number)  # one that was passed on is older than others
        del self.owed[: max(len(self.owed) - len(self.ops), 0)]

    def pay(self, seen: i64) -> i64:
        """Return the number of the oldest owed call after *seen*, which is owed no more; 0: there is none."""
        place = bisect_right(self.owed, seen)
        return self.owed.pop(place) if place < len(self.owed) else 0


class Watchers:
    """The operations under each watch key, in order of arrival (I12).

    A key maps to its operation, or to a line of operations from the second waiter on. Most keys have one waiter, and
    every object per operation costs time at each garbage collection: a fifth of the cost with a linked node per
    (operation, key). A line is keyed by a number: a subclass may define ``__eq__``, and no user code runs while entries
    are moved. Consecutive numbers never collide in a dict, and the operation keeps the number object itself, so it is
    found by identity. With ``id(op)``, which has equal low bits, leaving a key cost three times as much.
    """

    def __init__(self, may_be_stale: bool = False) -> None:
        #: May ended operations be listed? See purging.
        self.may_be_stale: Final = may_be_stale
        #: The entry of each key: an Operation, or a WaitLine of them; see listed().
        self.by_key: dict[Hashable, Any] = {}
        self._numbers = 1  # 0 is in front of the first
        # Watch entries that were ever made, and dropped.
        self._entered = 0
        self._dropped = 0
        #: Operations that wait now.
        self.pending = 0

    @property
    def entries(self) -> int:
        """Watch entries: an operation under three keys counts three times; with deferred purging, stale ones count."""
        return self._entered - self._dropped

    def enter(self, op: Operation, keys: tuple[Hashable, ...]) -> None:
        """Append the pending *op* under each of *keys*, which are distinct. Cost: O(1) per key."""
        by_key = self.by_key
        try:
            for key in keys:
                entry = by_key.setdefault(key, op)
                if entry is not op:
                    number = self._number(op)
                    line = entry if isinstance(entry, WaitLine) else self._begin_line(key, entry, number - 1)
                    line.ops[number] = op
                self._entered += 1
        except BaseException:  # a key that cannot be compared: undo the additions
            self.remove(op, keys)
            raise
        self.pending += 1

    def leave(self, op: Operation) -> BaseException | None:
        """Drop *op*, which has ended, under its keys. Returns: as remove()."""
        self.pending -= 1
        return self.remove(op, op._op_keys)

    def remove(self, op: Operation, keys: tuple[Hashable, ...]) -> BaseException | None:
        """Drop *op* under each of *keys*, and keys without watchers (I6). Cost: O(1) per key.

        Returns: None; or the exception of a key that could not be compared. *op* stays listed under that key.
        """
        by_key = self.by_key
        raised: BaseException | None = None
        for key in keys:
            try:
                entry = by_key.get(key)
                if entry is op:
                    del by_key[key]
                    self._dropped += 1
                elif isinstance(entry, WaitLine):
                    ops: dict[Any, Operation] = entry.ops
                    if op._op_number in ops:  # None, if it shares no key
                        del ops[op._op_number]
                        self._dropped += 1
                    if not entry.ops:
                        del by_key[key]
            except (Exception, CancelledError) as exc:
                raised = exc
        return raised

    def clear(self) -> None:
        """Drop all entries: only ended operations are left."""
        self.by_key.clear()
        self._dropped = self._entered

    def entry_of(self, key: Hashable) -> Any:
        """Return the entry of *key*, or None. Raises: TypeError: *key* is not hashable."""
        try:
            return self.by_key.get(key)
        except TypeError as exc:
            raise unhashable("key", key, exc) from None

    def waiting(self, key: Hashable, most: int = ALL) -> list[Operation]:
        """Return the oldest *most* operations under *key* now, stale ones included. Cost: O(most)."""
        return listed(self.entry_of(key), most)

    def count(self, key: Hashable) -> int:
        """Return the number of operations under *key*, stale ones included. Cost: O(1)."""
        entry = self.entry_of(key)
        return len(entry.ops) if isinstance(entry, WaitLine) else int(entry is not None)

    def line_of(self, key: Hashable) -> WaitLine | None:
        """Return the line of *key*, also if a single operation waits there; None if none does."""
        entry = self.by_key.get(key)
        if entry is None or isinstance(entry, WaitLine):
            return entry
        return self._begin_line(key, entry, 0)

    def lines(self) -> list[WaitLine]:
        """The lines of keys that more than one waits for. Cost: O(keys)."""
        return [entry for entry in self.by_key.values() if isinstance(entry, WaitLine)]

    def in_slices(self, entries: dict[Any, Any]) -> Iterator[list[tuple[Any, Any]]]:
        """List the items of by_key, or of a line, in slices: all at once take too long (I8).

        They may change in between. A dict keeps its order: what was listed is at its front, and newcomers are at its
        end. What was dropped in between may have been at the front, so the next slice begins that much earlier. So an
        item may be listed twice, and none is missed.
        """
        left = len(entries)
        place = 0
        while place < left and place < len(entries):
            before = self._dropped
            found: list[tuple[Any, Any]] = []
            try:  # noqa: SIM105 suppress() is a call
                found = list(islice(entries.items(), place, place + SLICE))
            except RuntimeError:
                pass  # on Python 3.11, garbage is collected in there: a finalizer has ended an operation
            if found:
                yield found
            place = max(place + len(found) - (self._dropped - before), 0)

    def ops_in_slices(self, entry: Any) -> Iterator[list[Operation]]:
        """List the operations in an entry in slices: as in_slices(), but each once, and no newcomers."""
        if not isinstance(entry, WaitLine):
            yield listed(entry)
            return
        last = 0
        newest = self._numbers
        for found in self.in_slices(entry.ops):
            yield [op for number, op in found if last < number <= newest]
            last = max(last, found[-1][0])

    def all_pending(self) -> list[Operation]:
        """Every operation that has not ended, once. Cost: O(entries)."""
        found: dict[int, Operation] = {}
        for entry in self.by_key.values():
            for op in listed(entry):
                if op._op_state == PENDING:
                    found[id(op)] = op
        return list(found.values())

    def verify(self) -> tuple[dict[int, Operation], set[tuple[Hashable, int]]]:
        """Check that keys have watchers, that these are pending, and that the counts are right.

        Returns: the pending operations by id, and (key, id) of all entries.
        Raises: AssertionError: names the invariant that does not hold.
        """
        pending: dict[int, Operation] = {}
        entries: set[tuple[Hashable, int]] = set()
        for key, entry in self.by_key.items():
            ops = listed(entry)
            assert ops, f"I6: key {key!r} has no watchers"
            if isinstance(entry, WaitLine):
                assert [op._op_number for op in ops] == list(entry.ops), f"I6: entries of {key!r} do not go by number"
            for op in ops:
                entries.add((key, id(op)))
                if op._op_state == PENDING:
                    pending[id(op)] = op
                else:
                    assert self.may_be_stale, f"I6: {op!r} has ended and is listed under {key!r}"
        assert len(entries) == self.entries, f"I6: {len(entries)} watch entries, the gauge says {self.entries}"
        assert len(pending) == self.pending, f"I5: {len(pending)} pending, the gauge says {self.pending}"
        return pending, entries

    def _begin_line(self, key: Hashable, op: Operation, number: int) -> WaitLine:
        """Begin a line with *op*. *number*: one before the operation that comes; 0: none comes."""
        if op._op_number is None and number > 0:
            op._op_number = number  # unique under its keys: so far, it is alone there
        line = WaitLine()
        line.ops[self._number(op)] = op
        self.by_key[key] = line
        return line

    def _number(self, op: Operation) -> int:
        if op._op_number is None:
            self._numbers += 1
            op._op_number = self._numbers
        number: int = op._op_number
        return number


def listed(entry: Any, most: int = ALL) -> list[Operation]:
    """Return the oldest *most* operations in an entry of ``Watchers.by_key``: a copy. Cost: O(most)."""
    if isinstance(entry, WaitLine):
        ops = entry.ops.values()
        return list(ops) if most >= len(entry.ops) else list(islice(ops, most))
    return [] if entry is None else [entry]


def checked_keys(keys: Any) -> tuple[Hashable, ...]:
    """Return *keys* as a tuple of distinct hashables; *keys* itself if it is one."""
    if not isinstance(keys, (list, tuple)):
        require_items("keys", keys, "key")
    found = tuple(keys)
    if not found:
        raise ValueError("keys must name at least one key, got none")
    try:
        count = len(found)  # `if len(found) == 1` narrows its type: compiled code would make another tuple of it
        if count == 1:
            hash(found[0])
            return found
        return tuple(dict.fromkeys(found)) if may_repeat(found) else found
    except TypeError as exc:
        for key in found:
            require_hashable("each of keys", key)
        raise exc


def may_repeat(keys: tuple[Hashable, ...]) -> bool:
    """May *keys* hold a duplicate? For up to three keys, comparing hashes costs a third of making a set."""
    count = len(keys)
    first = hash(keys[0])
    second = hash(keys[1])
    if count == 2:
        return first == second
    third = hash(keys[2])
    if count == 3:
        return first == second or second == third or third == first
    return len(set(keys)) != count
