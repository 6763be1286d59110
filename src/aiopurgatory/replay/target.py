"""The settings of a purgatory in a replay, and what it replays into."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import inf
from sys import getsizeof

from aiopurgatory.arguments import require_settings
from aiopurgatory.core.kit import NS, Core


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a purgatory.

    Args:
        tick_ms: tick of the timing wheel (default: 1).
        wheel_size: buckets per level of the timing wheel (default: 20).
        purge_interval: as for Purgatory (default: 0).

    Raises: TypeError, ValueError: Purgatory refuses the setting.
    """

    tick_ms: float = 1.0
    wheel_size: int = 20
    purge_interval: int = 0

    def __post_init__(self) -> None:
        tick = self.tick if isinstance(self.tick_ms, (int, float)) else self.tick_ms
        require_settings(tick, self.wheel_size, self.purge_interval)

    @property
    def tick(self) -> float:
        """The tick in seconds."""
        return self.tick_ms / 1000


class VirtualClock:
    """A Clock that moves only in run_to(). It holds one handle: a purgatory arms one at a time (I3)."""

    __slots__ = ("_at", "_callback", "_due", "_woken", "now")

    def __init__(self) -> None:
        self.now = 0.0
        #: The time of the next call; -inf if it is at once.
        self._due = inf
        self._at = inf
        self._callback: Callable[[], object] = int
        self._woken: Callable[[], object] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualClock:
        self._at = when
        self._callback = callback
        if self._woken is None:
            self._due = when
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
        """Make the calls that are due by *now*, in order of time, and stop there."""
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


class ReplayTarget:
    """The library's own purgatory. Its work runs on the virtual clock, not on the loop's next iteration."""

    def __init__(self, clock: VirtualClock, setting: Setting) -> None:
        self.peak_bytes = 0
        self._entries_weighed = 0
        self._visited = 0
        self._clock = clock
        self._core = Core("simulated", round(setting.tick * NS), setting.wheel_size, setting.purge_interval, None, inf)
        self.park = self._core.park

    def start(self) -> None:
        """Start, in the running loop."""
        core, clock = self._core, self._clock
        current, ident = asyncio.get_running_loop, threading.get_ident
        core.loop.enter(current(), clock.time, clock.time, ident, current, True, current)
        core.alarm.connect(clock.call_at, self._ring, self._wake)
        core.open()
        core.deadlines.sleep()

    def stop(self) -> None:
        self._core.alarm.disconnect()
        self._core.close()

    def weigh(self) -> None:
        """Record the size, if entries grew by 2 % since it was last taken."""
        entries = self._core.watchers.entries
        if entries > self._entries_weighed * 1.02:
            self._entries_weighed = entries
            self.peak_bytes = max(self.peak_bytes, self._size())

    def counts(self) -> dict[str, int]:
        """Return the steps so far, by name."""
        known = self._core.statistics()
        return {
            "cascades": known.cascaded,
            "wakeups": known.wakeups,
            "heap_operations": self._core.deadlines.timer.heap_operations,
            "purges": known.purges,
            "purge_visits": self._visited,
        }

    def _size(self) -> int:
        """Return the bytes that it holds, without keys and results."""
        watchers, timer = self._core.watchers, self._core.deadlines.timer
        by_key = watchers.by_key
        lines = watchers.lines()
        shared = [line.ops for line in lines]
        buckets = [bucket for wheel in timer.wheels for bucket in wheel.buckets]
        queue = timer.queued()
        ops = set(chain.from_iterable(map(watchers.waiting, by_key)))
        numbers = set(chain.from_iterable(shared))
        return (
            sum(map(getsizeof, [by_key, queue, *queue, *lines, *shared, *buckets]))
            + sum(map(getsizeof, numbers))
            + sum(getsizeof(bucket.expiration) for bucket in buckets if bucket.queued)
            + (len(ops) * getsizeof(next(iter(ops))) if ops else 0)  # all have the same size
        )

    def _wake(self) -> None:
        self._clock.wake(self._take_turn)

    def _ring(self) -> None:
        self._core.alarm.rang()
        self._take_turn()

    def _take_turn(self) -> None:
        core = self._core
        core.deadlines.expire_due(inf)
        if core.purging.is_due:
            self._visited += core.watchers.entries
        core.purging.work(inf)
        core.deadlines.sleep()
