"""The timer's items, and the rings that link them.

A bucket of the wheel is a doubly linked ring closed by a sentinel. Each item holds its own links, so it leaves its
bucket in O(1) without a search, and adding it allocates nothing.

    bucket <-> task <-> task <-> task <-> bucket        empty: bucket <-> bucket
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class EntrySlots:
    """The fields of Entry, in the interpreted form; see slots."""

    __slots__ = ("_ring_bucket", "_ring_deadline", "_ring_next", "_ring_prev")


@mypyc_attr(allow_interpreted_subclasses=True)
class Entry(EntrySlots):
    """An item of a ring: a deadline and the links, under names that subclasses are unlikely to use.

    Its fields have their defaults before ``__init__``, so that the constructor of a subclass need not call this one.
    """

    __slots__ = ()

    _ring_deadline: int = 0
    # None while in no timer: self-links would be cycles, which keep an ended task alive until the next gc pass.
    _ring_prev: Entry | None = None
    _ring_next: Entry | None = None
    _ring_bucket: Bucket | None = None  # the one that counts it

    def __init__(self, deadline: int = 0) -> None:
        self._ring_deadline = deadline


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask(Entry):
    """A task with a deadline.

    Args:
        deadline: integer, in the time unit of its timer.
    """

    __slots__ = ()

    @property
    def deadline(self) -> int:
        """When it expires."""
        return self._ring_deadline

    @deadline.setter
    def deadline(self, deadline: int) -> None:
        self._ring_deadline = deadline


@final
class Bucket(Entry):
    """The sentinel of one bucket's ring.

    ``expiration`` is the time at which the bucket is processed. It is valid only while ``queued``: a bucket is in the
    delay queue at most once, and stays there when it is emptied (see DelayQueue). ``count`` is for statistics: the
    tasks that were put here and have not left, including those being processed.
    """

    __slots__ = ("count", "expiration", "level", "queued")

    def __init__(self, level: int) -> None:
        self._ring_prev = self._ring_next = self
        self.level = level
        self.expiration = 0
        self.count = 0
        self.queued = False

    def is_empty(self) -> bool:
        return self._ring_next is self

    def append(self, task: Entry) -> None:
        """Append the unlinked *task*. Cost: O(1)."""
        last = self._ring_prev
        assert last is not None  # a sentinel is always linked
        task._ring_prev = last
        task._ring_next = self
        last._ring_next = task
        self._ring_prev = task
        task._ring_bucket = self
        self.count += 1

    def take_all(self, other: Bucket) -> None:
        """Move the tasks of *other* here, in order; *other* still counts them. This one must be empty. Cost: O(1)."""
        first, last = other._ring_next, other._ring_prev
        assert first is not None  # a sentinel is always linked
        assert last is not None
        self._ring_next = first
        self._ring_prev = last
        first._ring_prev = self
        last._ring_next = self
        other._ring_prev = other._ring_next = other

    def pop_first(self) -> Entry | None:
        """Unlink and return the oldest task, or None. Cost: O(1)."""
        first = self._ring_next
        assert first is not None
        return first if unlink(first) else None  # the sentinel itself is in none


def unlink(task: Entry) -> bool:
    """Take *task* out of its ring. Returns: False if it is in none. Cost: O(1)."""
    after, before, bucket = task._ring_next, task._ring_prev, task._ring_bucket
    if after is None or before is None or bucket is None:
        return False
    bucket.count -= 1
    task._ring_bucket = None
    before._ring_next = after
    after._ring_prev = before
    task._ring_prev = task._ring_next = None
    return True


def deadline_of(task: Entry) -> int:
    return task._ring_deadline


def set_deadline(task: Entry, deadline: int) -> None:
    """Give the unlinked *task* a new deadline."""
    task._ring_deadline = deadline


def tasks_in(bucket: Bucket) -> list[Entry]:
    """Return the tasks in *bucket*, oldest first; for verification. Raises: AssertionError: a link is broken (I6)."""
    found: list[Entry] = []
    before: Entry = bucket
    task = bucket._ring_next
    while task is not bucket:
        assert task is not None, "I6: the ring of a bucket is broken"
        assert task._ring_prev is before, "I6: the ring of a bucket is broken"
        found.append(task)
        before, task = task, task._ring_next
    assert bucket._ring_prev is before, "I6: the ring of a bucket is broken"
    return found
