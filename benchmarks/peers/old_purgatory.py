"""Kafka's old purgatory, up to 0.8: one heap of operations, lists of watchers, and a reaper that scans all of them.

An operation that is satisfied stays where it is: in the heap until its deadline, in a list until a check of that key
comes across it, in both until a purge. On an event loop, so without the locks.

Source: Kafka's wiki, Request Purgatory (0.8), and its description in the article about its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from math import ceil
from time import monotonic
from typing import Any, final

from mypy_extensions import mypyc_attr

#: Seconds after which the reaper looks whether to purge, if nothing comes due before.
POLL = 0.2


@mypyc_attr(allow_interpreted_subclasses=True)
class OldOperation:
    """To subclass, like a DelayedOperation."""

    __slots__ = ("due", "expired", "satisfied", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.due = 0.0
        self.satisfied = False
        self.expired = False

    def try_complete(self) -> object:
        return False

    def on_complete(self) -> object:
        return None

    def force_complete(self) -> bool:
        if self.satisfied:
            return False
        self.satisfied = True
        self.on_complete()
        return True


@final
class OldPurgatory:
    """
    Args: purge_interval: the reaper purges after so many were watched; Kafka's default was 10,000, then 1,000.
    """

    def __init__(self, purge_interval: int = 1_000) -> None:
        self.purges = 0
        self._purge_interval = purge_interval
        self._watched = 0  # since the last purge
        self._sequence = 0
        self._heap: list[tuple[float, int, OldOperation]] = []
        self._watchers: dict[Hashable, list[OldOperation]] = {}
        self._loop: Any = asyncio.get_running_loop()
        self._handle: Any = None

    def watch(self, op: OldOperation, keys: tuple[Hashable, ...]) -> None:
        """Try, register, try again, and give it to the reaper."""
        if op.try_complete():
            return
        for key in keys:
            waiting = self._watchers.get(key)
            if waiting is None:
                self._watchers[key] = [op]
            else:
                waiting.append(op)
        self._watched += 1
        if op.try_complete():
            return
        op.due = monotonic() + op.timeout
        self._sequence += 1
        heappush(self._heap, (op.due, self._sequence, op))
        if self._heap[0][2] is op:
            self._arm()

    def check(self, key: Hashable) -> None:
        """Complete what can be under *key*, and drop what is satisfied."""
        waiting = self._watchers.pop(key, None)
        if waiting is None:
            return
        left = [op for op in waiting if not op.satisfied and not op.try_complete()]
        if left:
            self._watchers[key] = left

    def purge(self) -> None:
        """Drop the satisfied from the heap and from every list."""
        self._watched = 0
        self.purges += 1
        self._heap = [entry for entry in self._heap if not entry[2].satisfied]
        heapify(self._heap)
        for key, waiting in list(self._watchers.items()):
            left = [op for op in waiting if not op.satisfied]
            if left:
                self._watchers[key] = left
            else:
                del self._watchers[key]

    def listed(self) -> int:
        """Entries in the heap and in the lists, satisfied or not."""
        return len(self._heap) + sum([len(waiting) for waiting in self._watchers.values()])

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._heap.clear()
        self._watchers.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            # uvloop would round to the nearest millisecond
            wait = ceil((self._heap[0][0] - monotonic()) * 1e3) / 1e3
            self._handle = self._loop.call_later(min(max(wait, 0.0), POLL), self._reap)

    def _reap(self) -> None:
        """The reaper: purge if it is time, and expire what is due; what is satisfied just leaves."""
        self._handle = None
        if self._watched >= self._purge_interval:
            self.purge()
        now = monotonic()
        while self._heap and self._heap[0][0] <= now:
            self._expire(heappop(self._heap)[2])
        self._arm()

    def _expire(self, op: OldOperation) -> None:
        if not op.satisfied and not op.try_complete():
            op.expired = True
            op.force_complete()
