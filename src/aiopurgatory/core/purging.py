"""Deferred purging, Kafka's way: ended operations stay under their other keys until a sweep drops them.

All of it is here. Without it, operations leave their keys when they end, and a sweep has something to do only after a
key could not be compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import inf
from typing import Final, final

from .checks import KeyChecks
from .deadlines import ClockAlarm
from .loop import Loop
from .observer import Finder
from .operation import CANCELLED, PENDING, Operation
from .watchers import Watchers, listed


@final
class Purging:
    """Makes the watchers, and sweeps them. Args: interval: sweep when about this many have ended; 0: it is off."""

    def __init__(self, interval: int, loop: Loop, alarm: ClockAlarm) -> None:
        self._loop: Final = loop
        self._alarm: Final = alarm
        self.interval: Final = interval
        self.watchers: Final[Watchers] = StaleWatchers(self) if interval > 0 else Watchers()
        #: Operations that ended since the last sweep: listed still, by Kafka's estimate. 0 without an interval.
        self.ended = 0
        self.is_due = False
        #: Sweeps so far, and entries that they dropped.
        self.purges = 0
        self.purged = 0
        # What is left of the sweep.
        self._steps: Iterator[None] | None = None

    def checks(self, finder: Finder, budget: float) -> KeyChecks:
        """Return the checks of the watchers. Args: as for KeyChecks."""
        kind = StaleChecks if self.interval > 0 else KeyChecks
        return kind(self._loop, self._alarm, self.watchers, finder, budget)

    def count_ended(self) -> None:
        """Schedule a sweep by Kafka's rule: by the estimate, more than *interval* operations ended since the last."""
        self.ended += 1
        if self.ended > self.interval:
            self.ended = 0
            self.schedule()

    def schedule(self) -> None:
        """Sweep from the next iteration on."""
        self.is_due = True
        self._alarm.wake()

    def has_work(self) -> bool:
        return self.is_due or self._steps is not None

    def purge(self) -> int:
        """Sweep all watch entries now. Returns: how many entries that dropped."""
        before = self.purged
        self._steps = self._sweep()
        self.work(inf)
        return self.purged - before

    def work(self, share: float) -> bool:
        """Sweep for *share* seconds. Returns: whether there is more to do."""
        turn_time = self._loop.turn_time
        stop = turn_time() + share
        while self.has_work():
            if self._steps is None:
                self._steps = self._sweep()
            for _ in self._steps:
                if turn_time() >= stop:
                    return True
            self._steps = None
        return False

    def clear(self) -> None:
        """Stop the sweep: no key has entries."""
        self.ended = 0
        self.is_due = False
        self._steps = None

    def _sweep(self) -> Iterator[None]:
        """Drop the entries of ended operations. Yields after each operation."""
        watchers = self.watchers
        self.ended = 0
        self.is_due = False
        self.purges += 1
        for entries in watchers.in_slices(watchers.by_key):
            for key, entry in entries:
                for op in listed(entry):
                    if op._op_state != PENDING:
                        before = watchers.entries
                        # A stored key is found without comparing it, unless others have its hash: it stays, then.
                        watchers.remove(op, (key,))
                        self.purged += before - watchers.entries
                    yield


@final
class StaleWatchers(Watchers):
    """Keeps operations that have ended under their keys. Only cancelled ones leave at once."""

    def __init__(self, purging: Purging) -> None:
        super().__init__(True)
        self._purging: Final = purging

    def leave(self, op: Operation) -> BaseException | None:
        self._purging.count_ended()
        if op._op_state == CANCELLED:
            return super().leave(op)
        self.pending -= 1
        return None


@final
class StaleChecks(KeyChecks):
    """Drops operations that have ended where a check meets them."""

    def _try_one(self, key: Hashable, op: Operation) -> int:
        ended = super()._try_one(key, op)
        if op._op_state != PENDING:
            self._watchers.remove(op, (key,))
        return ended
