"""The settings of a purgatory in a replay, and what it replays into."""

from __future__ import annotations

import asyncio
import threading
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


class ReplayTarget:
    """The library's own purgatory on virtual time, which moves only in run_to(). Make one in a running loop.

    It is the clock of its core, and the handle of the call that the core has armed: there is one at a time (I3). The
    core's work runs here, not on the loop's next iteration.
    """

    def __init__(self, setting: Setting) -> None:
        self.now = 0.0
        self.peak_bytes = 0
        #: The time of the armed call; and of the next work, -inf if the core has asked for it at once.
        self._at = self._due = inf
        self._entries_weighed = 0
        self._visited = 0
        core = Core("simulated", round(setting.tick * NS), setting.wheel_size, setting.purge_interval, None, inf)
        self._core = core
        self.park = core.park
        current, ident = asyncio.get_running_loop, threading.get_ident
        core.loop.enter(current(), self._time, self._time, ident, current, True, current)
        core.alarm.connect(self._call_at, self._take_turn, self._wake)
        core.open()
        core.deadlines.sleep()

    def close(self) -> None:
        self._core.alarm.disconnect()
        self._core.close()

    def run_to(self, now: float) -> None:
        """Do the work that is due by *now*, in order of time, and stop there."""
        while self._due <= now:
            if self._due > -inf:
                self.now = max(self.now, self._due)
                self._at = inf
                self._core.alarm.rang()
            self._due = self._at
            self._take_turn()
        self.now = now

    def cancel(self) -> None:
        """Disarm the call."""
        self._call_at(inf)

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
            "heap_operations": self._core.deadlines.timer.queue.operations,
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
        queue = timer.queue.heap.copy()  # without room for more
        ops = set(chain.from_iterable(map(watchers.waiting, by_key)))
        numbers = set(chain.from_iterable(shared))
        return (
            sum(map(getsizeof, [by_key, queue, *queue, *lines, *shared, *buckets]))
            + sum(map(getsizeof, numbers))
            + sum(getsizeof(bucket.expiration) for bucket in buckets if bucket.queued)
            + (len(ops) * getsizeof(next(iter(ops))) if ops else 0)  # all have the same size
        )

    def _time(self) -> float:
        return self.now

    def _call_at(self, when: float, callback: object = None) -> ReplayTarget:
        self._at = when
        if self._due > -inf:
            self._due = when
        return self

    def _wake(self) -> None:
        self._due = -inf

    def _take_turn(self) -> None:
        core = self._core
        core.deadlines.expire_due(inf)
        if core.purging.is_due:
            self._visited += core.watchers.entries
        core.purging.work(inf)
        core.deadlines.sleep()
