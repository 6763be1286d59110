"""Kafka's old purgatory, up to 0.8: one heap of operations, lists of watchers, and a reaper that scans all of them.

A satisfied operation stays in the heap until its deadline, and in each list until a check of that key; a purge removes
it from both. Written for an event loop, so without locks. It must be compiled whenever the library is: the copy of the
benchmarks in build/peers is.

Do its own mistakes decide the result? One did: each purge made all lists again, also those without a satisfied
operation. A difference to Kafka stays: a purge runs on the event loop, which waits for it. Kafka has a thread for that.

Source: Kafka's wiki, Request Purgatory (0.8), and its description in the article about its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Any, Final, final

from mypy_extensions import mypyc_attr

#: Seconds after which the reaper checks whether to purge, if nothing comes due before.
POLL: Final = 0.2


@mypyc_attr(allow_interpreted_subclasses=True)
class OldOperation:
    """Base class of operations, like DelayedOperation."""

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

    def on_expiration(self) -> object:
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
    Args:
        clock: an ``aiopurgatory.clock.Clock``.
        purge_interval: operations watched between two purges (default: 1,000; Kafka's was 10,000, then 1,000).
    """

    def __init__(self, clock: Any, purge_interval: int = 1_000) -> None:
        #: Entries pushed to the heap so far.
        self.pushed = 0
        self.purges = 0
        self.wakeups = 0
        self._purge_interval = purge_interval
        self._watched = 0  # since the last purge
        self.heap: list[tuple[float, int, OldOperation]] = []
        self.watchers: dict[Hashable, list[OldOperation]] = {}
        self._time: Callable[[], float] = clock.time
        self._call_at: Any = clock.call_at
        self._handle: Any = None

    def watch(self, op: OldOperation, keys: tuple[Hashable, ...]) -> OldOperation:
        """Try, register, try again, and give it to the reaper."""
        if op.try_complete():
            return op
        for key in keys:
            waiting = self.watchers.get(key)
            if waiting is None:
                self.watchers[key] = [op]
            else:
                waiting.append(op)
        self._watched += 1
        if op.try_complete():
            return op
        op.due = self._time() + op.timeout
        self.pushed += 1
        heappush(self.heap, (op.due, self.pushed, op))
        if self.heap[0][2] is op:
            self._arm()
        return op

    def check(self, key: Hashable) -> None:
        """Try all operations under *key*, and drop the satisfied ones."""
        waiting = self.watchers.pop(key, None)
        if waiting is None:
            return
        left = [op for op in waiting if not op.satisfied and not op.try_complete()]
        if left:
            self.watchers[key] = left

    def purge(self) -> None:
        """Drop satisfied operations from the heap and from every list."""
        self._watched = 0
        self.purges += 1
        self.heap = [entry for entry in self.heap if not entry[2].satisfied]
        heapify(self.heap)
        watchers = self.watchers
        for key in list(watchers):
            waiting = watchers[key]
            for op in waiting:
                if op.satisfied:
                    break
            else:
                continue  # nothing to drop: the list is not made again
            left = [op for op in waiting if not op.satisfied]
            if left:
                watchers[key] = left
            else:
                del watchers[key]

    def listed(self) -> int:
        """Entries in the heap and in the lists, satisfied or not."""
        return len(self.heap) + sum([len(waiting) for waiting in self.watchers.values()])

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.heap.clear()
        self.watchers.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self.heap:
            self._handle = self._call_at(min(self.heap[0][0], self._time() + POLL), self._reap)

    def _reap(self) -> None:
        """The reaper: purge if it is time, and expire operations that are due. Drop those already satisfied."""
        self._handle = None
        self.wakeups += 1
        if self._watched >= self._purge_interval:
            self.purge()
        now = self._time()
        while self.heap and self.heap[0][0] <= now:
            self._expire(heappop(self.heap)[2])
        self._arm()

    def _expire(self, op: OldOperation) -> None:
        if not op.satisfied and not op.try_complete():
            op.expired = True
            op.force_complete()
            op.on_expiration()
