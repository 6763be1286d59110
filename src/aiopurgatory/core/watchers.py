"""Who waits under which key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, cast, final

if TYPE_CHECKING:
    from .operation import Operation


@final
class Watchers:
    """The operations under each watch key, in order of arrival (I12).

    A key maps to its operation, and from the second waiter on to a dict of them. Most keys have one waiter, and each
    object that the garbage collector must visit per operation is paid for at every collection: against a linked node
    per (operation, key) this spent a fifth of the time there. The inner dict goes by a number, so that a subclass may
    define ``__eq__`` and no user code runs while entries are moved. Consecutive numbers never collide in a dict, and
    the operation keeps the very object, so that it is found by identity; against ``id(op)``, whose low bits are all the
    same, to leave a key costs a third.
    """

    __slots__ = ("_by_key", "_numbers", "entries")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, object] = {}  # Operation | dict[int, Operation]
        self._numbers = 0
        #: Watch entries: an operation under three keys counts three times; with deferred purging, stale ones count.
        self.entries = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def get(self, key: Hashable) -> object:
        """What waits under *key*, to be passed to listed(); None if nothing does. Cost: O(1)."""
        return self._by_key.get(key)

    def add(self, op: Operation, keys: tuple[Hashable, ...]) -> None:
        """Append *op* under each of *keys*, which are distinct. Cost: O(1) per key."""
        by_key = self._by_key
        added = 0
        try:
            for key in keys:
                entry = by_key.setdefault(key, op)
                if entry is not op:
                    if isinstance(entry, dict):
                        entry[self._number(op)] = op
                    else:
                        other = cast("Operation", entry)
                        by_key[key] = {self._number(other): other, self._number(op): op}
                added += 1
        except BaseException:  # a key that cannot be compared: take back what was done
            self.entries += added
            self.remove(op, keys[:added])
            raise
        self.entries += added

    def remove(self, op: Operation, keys: tuple[Hashable, ...]) -> None:
        """Drop *op* under each of *keys*, and keys that nobody watches any more (I6). Cost: O(1) per key."""
        for key in keys:
            self.drop(op, key)

    def drop(self, op: Operation, key: Hashable) -> None:
        """Drop *op* under *key*, if it is there. Cost: O(1)."""
        by_key = self._by_key
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

    def _number(self, op: Operation) -> object:
        if op._op_number is None:
            self._numbers += 1
            op._op_number = self._numbers
        return op._op_number

    def keys(self) -> list[Hashable]:
        return list(self._by_key)

    def waiting(self, key: Hashable) -> list[Operation]:
        """The operations under *key* now, oldest first; stale ones are among them. Cost: O(waiters)."""
        return listed(self._by_key.get(key))

    def pending(self) -> list[Operation]:
        """Every operation that has not ended, once. Cost: O(entries)."""
        found: dict[int, Operation] = {}
        for entry in self._by_key.values():
            for op in listed(entry):
                if op._op_outcome is None:
                    found[id(op)] = op
        return list(found.values())


def listed(entry: object) -> list[Operation]:
    """The operations of what Watchers.get() returned, as they are now."""
    if isinstance(entry, dict):
        return list(entry.values())
    return [] if entry is None else [cast("Operation", entry)]
