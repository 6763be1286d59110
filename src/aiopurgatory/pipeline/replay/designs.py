"""What a trace is replayed to: a purgatory of either design, on a clock that moves when told to."""

from __future__ import annotations

import asyncio
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from math import ceil, inf
from sys import getsizeof
from typing import Any

from aiopurgatory.core.operation import number_of
from aiopurgatory.core.purgatory import Parts, SyncPurgatory
from aiopurgatory.core.watchers import listed
from aiopurgatory.operation import DelayedOperation

from .old_purgatory import OldOperation, OldPurgatory
from .settings import Setting


class VirtualClock:
    """A Clock that stands still but for run_to(). A purgatory arms one handle at a time (I3), so it holds one.

    Args: whole_ms: wake up at whole milliseconds, as event loops do.
    """

    __slots__ = ("_at", "_callback", "_whole_ms", "_woken", "due", "now")

    def __init__(self, whole_ms: bool = False) -> None:
        self._whole_ms = whole_ms
        self.now = 0.0
        #: When there is something to run; before all time if that is at once.
        self.due = inf
        self._at = inf
        self._callback: Callable[[], object] = int
        self._woken: Callable[[], object] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualClock:
        self._at = max(when, ceil(when * 1e3) / 1e3) if self._whole_ms else when
        self._callback = callback
        if self._woken is None:
            self.due = self._at
        return self

    def cancel(self) -> None:
        self._at = inf
        if self._woken is None:
            self.due = inf

    def wake(self, callback: Callable[[], object]) -> None:
        """Run *callback* before the time moves on."""
        self._woken = callback
        self.due = -inf

    def run_to(self, now: float) -> None:
        """Run what is due by *now*, in order of time."""
        while self.due <= now:
            woken = self._woken
            if woken is not None:
                self._woken = None
                self.due = self._at
                woken()
            else:
                self.now = max(self.now, self.due)
                self.due = self._at = inf
                self._callback()


class Subject(ABC):
    """What is replayed to, and how much it held."""

    operation: Any
    watch: Callable[[Any, tuple[Hashable, ...]], Any]

    def __init__(self) -> None:
        self.peak_listed = 0
        self.peak_bytes = 0
        self._weighed = 0

    def weigh(self) -> None:
        """Take the size, if there is a good deal more than when it was taken last."""
        entries = self.entries()
        self.peak_listed = max(self.peak_listed, entries)
        if entries > self._weighed * 1.02:
            self._weighed = entries
            self.peak_bytes = max(self.peak_bytes, self.size())

    @abstractmethod
    def entries(self) -> int:
        """Watch entries now, those of ended operations included."""

    @abstractmethod
    def size(self) -> int:
        """Bytes of what it holds, without what operations carry."""


class New(Subject):
    """The library itself, on the virtual clock: a turn is taken when that says so, not on the loop's next iteration."""

    operation = DelayedOperation

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        super().__init__()
        self._visited = 0
        self._clock = clock
        tick_ns = round((setting.tick_ms or 1.0) * 1e6)
        self._parts = Parts(
            "simulated", tick_ns, setting.wheel_size or 20, setting.purge_interval, None, inf, (), warnings.warn
        )
        self.watch = SyncPurgatory(self._parts).watch

    async def start(self) -> None:
        parts, clock = self._parts, self._clock
        parts.loop.enter(asyncio.get_running_loop(), clock.time, clock.time, threading.get_ident, None)
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
        ops = {id(op): op for entry in by_key.values() for op in listed(entry)}
        numbers = [number for number in map(number_of, ops.values()) if number is not None]
        return (
            sum(map(getsizeof, [by_key, queue, *queue, *shared, *buckets, *ops.values()]))
            + sum(map(getsizeof, numbers))
            + sum(getsizeof(bucket.expiration) for bucket in buckets if bucket.queued)
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


class Old(Subject):
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
        ops = {id(op): op for waiting in watchers.values() for op in waiting}
        ops.update((id(op), op) for _, _, op in heap)
        parts = [watchers, heap, *watchers.values(), *ops.values()]
        return sum(map(getsizeof, parts)) + sum(sum(map(getsizeof, (entry, *entry[:2]))) for entry in heap)
