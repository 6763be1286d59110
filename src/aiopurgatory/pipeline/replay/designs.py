"""The targets of a replay: a purgatory of either design, on a virtual clock."""

from __future__ import annotations

import asyncio
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from itertools import chain
from math import ceil, inf
from operator import itemgetter
from sys import getsizeof
from typing import Any, cast

from aiopurgatory.core.nanoseconds import NS
from aiopurgatory.core.operation import number_of
from aiopurgatory.core.purgatory import Parts, SyncPurgatory
from aiopurgatory.core.watchers import listed
from aiopurgatory.operation import DelayedOperation

from .old_purgatory import OldOperation, OldPurgatory
from .settings import Setting


class VirtualClock:
    """A Clock that moves only in run_to(). It holds one handle: a purgatory arms one at a time (I3).

    Args: whole_ms: wake up at whole milliseconds, as event loops do.
    """

    __slots__ = ("_at", "_callback", "_due", "_whole_ms", "_woken", "now")

    def __init__(self, whole_ms: bool = False) -> None:
        self._whole_ms = whole_ms
        self.now = 0.0
        #: The time of the next call; -inf if it is at once.
        self._due = inf
        self._at = inf
        self._callback: Callable[[], object] = int
        self._woken: Callable[[], object] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualClock:
        self._at = max(when, ceil(when * 1e3) / 1e3) if self._whole_ms else when
        self._callback = callback
        if self._woken is None:
            self._due = self._at
        return self

    def cancel(self) -> None:
        self._at = inf
        if self._woken is None:
            self._due = inf

    def wake(self, callback: Callable[[], object]) -> None:
        """Run *callback* before the time moves on."""
        self._woken = callback
        self._due = -inf

    def run_to(self, now: float) -> None:
        """Run what is due by *now*, in order of time, and stop there."""
        while self._due <= now:
            woken = self._woken
            if woken is not None:
                self._woken = None
                self._due = self._at
                woken()
            else:
                self.now = max(self.now, self._due)
                self._due = self._at = inf
                self._callback()
        self.now = now


class Target(ABC):
    """A purgatory that operations are replayed to, with its peak sizes."""

    operation: Any
    watch: Callable[[Any, tuple[Hashable, ...]], Any]

    def __init__(self) -> None:
        self.peak_listed = 0
        self.peak_bytes = 0
        self._weighed = 0

    def weigh(self) -> None:
        """Record the number of entries. Record the size, too, if entries grew by 2 % since it was last taken."""
        entries = self.entries()
        self.peak_listed = max(self.peak_listed, entries)
        if entries > self._weighed * 1.02:
            self._weighed = entries
            self.peak_bytes = max(self.peak_bytes, self.size())

    @abstractmethod
    def entries(self) -> int:
        """Return the number of watch entries, including those of ended operations."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that it holds, without keys and results."""


class New(Target):
    """The library itself. Its work runs on the virtual clock, not on the loop's next iteration."""

    operation = DelayedOperation

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        super().__init__()
        self._visited = 0
        self._clock = clock
        tick_ns, wheel_size = round(setting.tick * NS), cast(int, setting.wheel_size)
        self._parts = Parts(
            "simulated", tick_ns, wheel_size, setting.purge_interval, None, inf, (), warnings.warn, bool
        )
        self.watch = SyncPurgatory(self._parts).watch

    async def start(self) -> None:
        parts, clock = self._parts, self._clock
        current, ident = asyncio.get_running_loop, threading.get_ident
        parts.loop.enter(current(), clock.time, clock.time, ident, current, True)
        parts.alarm.connect(clock.call_at, self._ring, self._wake)
        parts.parking.open()
        parts.deadlines.sleep()

    async def stop(self) -> None:
        self._parts.alarm.disconnect()
        self._parts.parking.close()

    def entries(self) -> int:
        return self._parts.watchers.entries

    def counts(self) -> dict[str, int]:
        known = self._parts.statistics()
        return {
            "cascades": known.cascaded,
            "wakeups": known.wakeups,
            "heap_operations": self._parts.deadlines.timer.heap_operations,
            "purges": known.purges,
            "purge_visits": self._visited,
        }

    def size(self) -> int:
        by_key, timer = self._parts.watchers.by_key, self._parts.deadlines.timer
        shared = [entry for entry in by_key.values() if isinstance(entry, dict)]
        buckets = [bucket for wheel in timer.wheels for bucket in wheel.buckets]
        queue = timer.queued()
        ops = set(chain.from_iterable(map(listed, by_key.values())))
        numbers = [number for number in map(number_of, ops) if number is not None]
        return (
            sum(map(getsizeof, [by_key, queue, *queue, *shared, *buckets]))
            + sum(map(getsizeof, numbers))
            + sum(getsizeof(bucket.expiration) for bucket in buckets if bucket.queued)
            + size_of_all(ops)
        )

    def _wake(self) -> None:
        self._clock.wake(self._take_turn)

    def _ring(self) -> None:
        self._parts.alarm.rang()
        self._take_turn()

    def _take_turn(self) -> None:
        parts = self._parts
        parts.deadlines.expire_due(inf)
        if parts.purging.is_due:
            self._visited += parts.watchers.entries
        parts.purging.work(inf)
        parts.deadlines.sleep()


class Old(Target):
    """Kafka's purgatory up to 0.8."""

    operation = OldOperation

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        super().__init__()
        self._purgatory = OldPurgatory(clock, setting.purge_interval)
        self.watch = self._purgatory.watch

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._purgatory.close()

    def entries(self) -> int:
        return self._purgatory.listed()

    def counts(self) -> dict[str, int]:
        old = self._purgatory
        return {
            "cascades": 0,
            "wakeups": old.wakeups,
            "heap_operations": old.pushed + old.popped,
            "purges": old.purges,
            "purge_visits": old.visited,
        }

    def size(self) -> int:
        watchers, heap = self._purgatory.watchers, self._purgatory.heap
        ops = set(chain.from_iterable(watchers.values()))
        ops.update(map(itemgetter(2), heap))
        entry = sum(map(getsizeof, (heap[0], *heap[0][:2]))) if heap else 0
        return sum(map(getsizeof, [watchers, heap, *watchers.values()])) + len(heap) * entry + size_of_all(ops)


def size_of_all(alike: Collection[object]) -> int:
    """Return the bytes of the objects in *alike*, which all have the same size."""
    return len(alike) * getsizeof(next(iter(alike))) if alike else 0
