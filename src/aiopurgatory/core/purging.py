"""Deferred purging, Kafka's way: ended operations stay under their other keys until a sweep drops them."""

from __future__ import annotations

from asyncio.exceptions import CancelledError
from collections.abc import Hashable
from math import inf
from typing import Final, final

from .deadlines import ClockAlarm
from .loop import Loop
from .operation import PENDING, Operation
from .watchers import Watchers


@final
class Purging:
    """Args: interval: sweep when about this many operations have ended; 0: nothing is ever left to sweep."""

    __slots__ = (
        "_alarm",
        "_key",
        "_keys",
        "_loop",
        "_ops",
        "_watchers",
        "estimated",
        "interval",
        "is_due",
        "purged",
        "purges",
    )

    def __init__(self, interval: int, loop: Loop, alarm: ClockAlarm, watchers: Watchers) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self._watchers: Final = watchers
        self.interval: Final = interval
        #: Kafka's estimate of pending and ended-but-listed operations; 0 without an interval.
        self.estimated = 0
        self.is_due = False
        #: Sweeps so far, and entries that they dropped.
        self.purges = 0
        self.purged = 0
        # The position of the sweep: keys to come, the current key, and the operations left under it.
        self._keys: list[Hashable] = []
        self._key: Hashable = None
        self._ops: list[Operation] = []

    def count_watched(self) -> None:
        """Count an operation that was parked."""
        self.estimated += 1
        self.schedule_if_due()

    def schedule_if_due(self) -> None:
        """Schedule a sweep by Kafka's rule: by the estimate, more than *interval* operations ended since the last."""
        if self.estimated - self._watchers.pending > self.interval:
            self.estimated = self._watchers.pending
            self.schedule()

    def schedule(self) -> None:
        """Sweep from the next iteration on."""
        self.is_due = True
        self._alarm.wake()

    def has_work(self) -> bool:
        return self.is_due or bool(self._keys) or bool(self._ops)

    def purge(self) -> int:
        """Sweep all watch entries now. Returns: how many entries that dropped."""
        self._begin()
        before = self.purged
        self.work(inf)
        return self.purged - before

    def work(self, share: float) -> bool:
        """Sweep for *share* seconds. Returns: whether there is more to do."""
        turn_time, watchers = self._loop.turn_time, self._watchers
        stop = turn_time() + share
        while True:
            while self._ops:
                op = self._ops.pop()
                if op._op_state != PENDING:
                    before = watchers.entries
                    # A stored key is found without comparing it, unless others have its hash: it stays, then.
                    watchers.remove(op, (self._key,))
                    self.purged += before - watchers.entries
                if turn_time() >= stop:
                    return True
            if self._keys:
                self._key = self._keys.pop()
                try:
                    self._ops = watchers.waiting(self._key)
                except (Exception, CancelledError):
                    self._ops = []
            elif self.is_due:
                self._begin()
            else:
                self._key = None
                return False

    def clear(self) -> None:
        """Stop the sweep: no key has entries."""
        self.estimated = 0
        self.is_due = False
        self._keys.clear()
        self._ops.clear()

    def _begin(self) -> None:
        self.estimated = self._watchers.pending
        self.is_due = False
        self.purges += 1
        self._keys = list(self._watchers.by_key)
        self._ops = []
