"""Implement Netty's timing wheel, and the ring of entries that it shares with Linux's.

Linking an entry is inlined in both: in interpreted Python a helper would cost as much as its work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

TICK: Final = 1_000_000


class Entry:
    """An item of a wheel, with its link cell; linked to nothing while in no timer."""

    __slots__ = ("after", "before", "deadline", "rounds")

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.rounds = 0  # only the hashed wheel's
        self.before: Entry | None = None
        self.after: Entry | None = None


@final
class Bucket(Entry):
    """The sentinel of a ring of entries. Its other attributes serve Linux's wheel."""

    __slots__ = ("bit", "expiration", "level")

    def __init__(self, level: int, index: int) -> None:
        super().__init__(0)
        self.before = self.after = self
        self.level = level
        self.bit = 1 << index
        self.expiration = 0


def unlink(entry: Entry) -> None:
    before, after = entry.before, entry.after
    assert before is not None
    assert after is not None
    before.after = after
    after.before = before
    entry.before = entry.after = None


@final
class HashedWheel:
    """One wheel. An entry counts the rounds it has to wait, and each tick visits every entry of its bucket.

    Source: Varghese and Lauck's scheme 6 as in Netty's HashedWheelTimer (512 buckets; its tick is 100 ms by default).
    """

    __slots__ = ("_buckets", "_count", "_done", "_size", "_tick")

    def __init__(self, tick: int = TICK, size: int = 512) -> None:
        self._tick = tick
        self._size = size
        self._buckets = [Bucket(0, index) for index in range(size)]
        self._done = 0  # the last tick that was worked off
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def make(self, deadline: int) -> Entry:
        return Entry(deadline)

    def add(self, item: Entry) -> None:
        done, size = self._done, self._size
        tick = -(-item.deadline // self._tick)
        if tick <= done:
            tick = done + 1
        item.rounds = (tick - done - 1) // size
        bucket = self._buckets[tick % size]
        last = bucket.before
        assert last is not None  # a sentinel is always linked
        item.before = last
        item.after = bucket
        last.after = item
        bucket.before = item
        self._count += 1

    def cancel(self, item: Entry) -> None:
        before, after = item.before, item.after
        if before is None or after is None:
            return
        before.after = after
        after.before = before
        item.before = item.after = None
        self._count -= 1

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        last = now // self._tick
        expired = 0
        while self._done < last:
            if self._count == 0:
                self._done = last  # Netty's would tick on
                break
            self._done += 1
            expired += self._visit(self._buckets[self._done % self._size], expire)
        return expired

    def next_expiration(self) -> int | None:
        return (self._done + 1) * self._tick if self._count else None

    def _visit(self, bucket: Bucket, expire: Callable[[Any], object]) -> int:
        expired = 0
        entry = bucket.after
        while entry is not None and entry is not bucket:
            after = entry.after
            if entry.rounds > 0:
                entry.rounds -= 1
            else:
                unlink(entry)
                self._count -= 1
                expired += 1
                expire(entry)
            entry = after
        return expired
