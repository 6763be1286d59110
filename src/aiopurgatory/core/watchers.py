"""Watchers: the operations waiting under each key, and how many are pending."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Hashable
from itertools import islice
from typing import Any, Final, cast

from ..arguments import require_hashable, require_items, unhashable
from .operation import PENDING, Operation

#: No limit. (Larger integers are objects in compiled code, and each comparison converts them.)
ALL: Final = 1 << 60


class Watchers:
    """The operations under each watch key, in order of arrival (I12).

    A key maps to its operation, or to a dict of operations from the second waiter on. Most keys have one waiter, and
    every object per operation costs time at each garbage collection: a fifth of the cost with a linked node per
    (operation, key). The inner dict is keyed by a number: a subclass may define ``__eq__``, and no user code runs while
    entries are moved. Consecutive numbers never collide in a dict, and the operation keeps the number object itself, so
    it is found by identity. With ``id(op)``, which has equal low bits, leaving a key cost three times as much.
    """

    def __init__(self, may_be_stale: bool = False) -> None:
        #: May ended operations be listed? See purging.
        self.may_be_stale: Final = may_be_stale
        #: The entry of each key: an Operation, or a dict of them by number; see listed().
        self.by_key: dict[Hashable, object] = {}
        self._numbers = 0
        #: Watch entries: an operation under three keys counts three times; with deferred purging, stale ones count.
        self.entries = 0
        #: Operations that wait now.
        self.pending = 0

    def enter(self, op: Operation, keys: tuple[Hashable, ...]) -> None:
        """Append the pending *op* under each of *keys*, which are distinct. Cost: O(1) per key."""
        by_key = self.by_key
        added = 0
        try:
            for key in keys:
                entry = by_key.setdefault(key, op)
                if entry is not op:
                    if isinstance(entry, dict):
                        entry[self._number(op)] = op
                    else:
                        other = cast(Operation, entry)
                        by_key[key] = {self._number(other): other, self._number(op): op}
                added += 1
        except BaseException:  # a key that cannot be compared: undo the additions
            self.entries += added
            self.remove(op, keys[:added])
            raise
        self.entries += added
        self.pending += 1

    def leave(self, op: Operation) -> BaseException | None:
        """Drop *op*, which has ended, under its keys. Returns: as remove()."""
        self.pending -= 1
        return self.remove(op, op._op_keys)

    def remove(self, op: Operation, keys: tuple[Hashable, ...]) -> BaseException | None:
        """Drop *op* under each of *keys*, and keys without watchers (I6). Cost: O(1) per key.

        Returns: None; or the exception of a key that could not be compared. *op* stays listed under that key.
        """
        raised: BaseException | None = None
        for key in keys:
            try:
                self.drop(op, key)
            except (Exception, CancelledError) as exc:
                raised = exc
        return raised

    def drop(self, op: Operation, key: Hashable) -> None:
        """Drop *op* under *key*, if it is there. Cost: O(1)."""
        by_key = self.by_key
        entry = by_key.get(key)
        if entry is op:
            del by_key[key]
        elif isinstance(entry, dict):
            try:
                del entry[op._op_number]
            except KeyError:
                return
            if not entry:
                del by_key[key]
        else:
            return
        self.entries -= 1

    def clear(self) -> None:
        """Drop all entries: only ended operations are left."""
        self.by_key.clear()
        self.entries = 0

    def entry_of(self, key: Hashable) -> object:
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
        return len(entry) if isinstance(entry, dict) else int(entry is not None)

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
            if isinstance(entry, dict):
                assert [op._op_number for op in ops] == list(entry), f"I6: entries of {key!r} do not go by number"
            for op in ops:
                entries.add((key, id(op)))
                if op._op_state == PENDING:
                    pending[id(op)] = op
                else:
                    assert self.may_be_stale, f"I6: {op!r} has ended and is listed under {key!r}"
        assert len(entries) == self.entries, f"I6: {len(entries)} watch entries, the gauge says {self.entries}"
        assert len(pending) == self.pending, f"I5: {len(pending)} pending, the gauge says {self.pending}"
        return pending, entries

    def _number(self, op: Operation) -> object:
        number = op._op_number
        if number is None:
            self._numbers += 1
            number = self._numbers
            op._op_number = number
        return number


def listed(entry: object, most: int = ALL) -> list[Operation]:
    """Return the oldest *most* operations in an entry of ``Watchers.by_key``: a copy. Cost: O(most)."""
    if isinstance(entry, dict):
        ops = entry.values()
        return list(ops) if most >= len(entry) else list(islice(ops, most))
    return [] if entry is None else [cast(Operation, entry)]


def checked_keys(keys: Any) -> tuple[Hashable, ...]:
    """Return *keys* as a tuple of distinct hashables; *keys* itself if it is one."""
    if not isinstance(keys, (list, tuple)):
        require_items("keys", keys, "key")
    found = tuple(keys)
    if not found:
        raise ValueError("keys must name at least one key, got none")
    try:
        return tuple(dict.fromkeys(found)) if may_repeat(found) else found
    except TypeError as exc:
        for key in found:
            require_hashable("each of keys", key)
        raise exc


def may_repeat(keys: tuple[Hashable, ...]) -> bool:
    """May *keys* hold a duplicate? For up to three keys, comparing hashes costs a third of making a set."""
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
