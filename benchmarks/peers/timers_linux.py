"""Implement Linux's timing wheel, without cascades."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from .timers_hashed import TICK, Bucket, Entry, unlink

#: Later than any tick.
NEVER: Final = 1 << 60
#: Linux's wheel: 8 levels of 64 buckets, a bucket of a level 8 times as wide as one of the level before.
LEVELS: Final = 8
SIZE: Final = 64
#: In ticks: a timer farther away than REACH (37 h with a tick of 1 ms) expires at FARTHEST, early.
REACH: Final = (SIZE - 1) << 3 * LEVELS - 3
FARTHEST: Final = REACH - (1 << 3 * LEVELS - 3)


@final
class LinuxWheel:
    """Levels of ever wider buckets, and no cascade: an entry expires with the bucket it was put in.

    With a tick of 1 ms, by timeout::

        level     0         1            2           3           4          5          6            7
        timeout   < 63 ms   < 504 ms     < 4 s       < 32 s      < 258 s    < 34 min   < 4.6 h      < 37 h
        bucket    1 ms      8 ms         64 ms       512 ms      4 s        33 s       262 s        35 min

    A deadline is rounded up to the next bucket, so it is never early and up to 8/63 of the timeout late (Linux says
    12.5 %). A bitmap per level says which buckets hold something.

    Source: Linux's kernel/time/timer.c since 4.8, as its comments and commits describe it.
    """

    __slots__ = ("_count", "_done", "_exact", "_levels", "_next", "_pending", "_tick")

    def __init__(self, tick: int = TICK) -> None:
        self._tick = tick
        self._levels = [[Bucket(level, index) for index in range(SIZE)] for level in range(LEVELS)]
        self._pending = [0] * LEVELS
        self._done = 0  # the last tick that was worked off
        # The tick at which there is next something to do, or a lower bound if it is not exact: cancel() only marks it.
        self._next = NEVER
        self._exact = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def make(self, deadline: int) -> Entry:
        return Entry(deadline)

    def add(self, item: Entry) -> None:
        done = self._done
        tick = item.deadline // self._tick
        ahead = tick - done
        if ahead < 0:
            tick, ahead = done, 0
        elif ahead >= REACH:
            tick, ahead = done + FARTHEST, FARTHEST
        level = ((ahead // 63).bit_length() + 2) // 3
        granule = (tick >> 3 * level) + 1
        bucket = self._levels[level][granule & 63]
        last = bucket.before
        assert last is not None  # a sentinel is always linked
        item.before = last
        item.after = bucket
        last.after = item
        bucket.before = item
        self._count += 1
        if last is bucket:
            self._occupy(bucket, granule << 3 * level)

    def cancel(self, item: Entry) -> None:
        before, after = item.before, item.after
        if before is None or after is None:
            return
        before.after = after
        after.before = before
        item.before = item.after = None
        self._count -= 1
        if before is after:
            self._vacate(before)

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        last = now // self._tick
        expired = 0
        while self._count and self._next_tick() <= last:
            self._done = self._next
            self._exact = False
            expired += self._expire(expire)
        self._done = max(self._done, last)
        return expired

    def next_expiration(self) -> int | None:
        return self._next_tick() * self._tick if self._count else None

    def _occupy(self, bucket: Bucket, expiration: int) -> None:
        self._pending[bucket.level] |= bucket.bit
        bucket.expiration = expiration
        self._next = min(self._next, expiration)

    def _vacate(self, sentinel: Entry) -> None:
        assert isinstance(sentinel, Bucket)  # the only entry that is linked to itself
        self._pending[sentinel.level] &= ~sentinel.bit
        if sentinel.expiration == self._next:
            self._exact = False

    def _next_tick(self) -> int:
        if not self._exact:
            self._next = min([self._first_of(level) for level in range(LEVELS)])
            self._exact = True
        return self._next

    def _first_of(self, level: int) -> int:
        """When the next occupied bucket of *level* is due: the first bit, seen from the bucket after the current."""
        pending = self._pending[level]
        if pending == 0:
            return NEVER
        granule = (self._done >> 3 * level) + 1
        turn = granule & 63
        turned = pending >> turn | pending << SIZE - turn
        return granule + (turned & -turned).bit_length() - 1 << 3 * level

    def _expire(self, expire: Callable[[Any], object]) -> int:
        """Empty the buckets that are due at the current tick; a coarser level has one only where its granule starts."""
        expired = 0
        tick = self._done
        for level in range(LEVELS):
            bucket = self._levels[level][tick & 63]
            if self._pending[level] & bucket.bit:
                self._pending[level] &= ~bucket.bit
                expired += self._empty(bucket, expire)
            if tick & 7:
                break
            tick >>= 3
        return expired

    def _empty(self, bucket: Bucket, expire: Callable[[Any], object]) -> int:
        expired = 0
        entry = bucket.after
        while entry is not None and entry is not bucket:
            after = entry.after
            unlink(entry)
            self._count -= 1
            expired += 1
            expire(entry)
            entry = after
        return expired
