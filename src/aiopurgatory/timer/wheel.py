"""One level of the hierarchical timing wheel."""

from __future__ import annotations

from typing import final

from .ring import Bucket


@final
class TimingWheel:
    """``size`` buckets of ``tick`` each. Deadlines are rounded up: bucket *i* holds deadlines i*tick < d <= (i+1)*tick.

    With tick 10 and size 8, at time 0 (a wheel of 80 on level 0, the next level has tick 80 and reaches 640)::

        index           0      1      2      3      4      5      6      7
        deadlines     1-10  11-20  21-30  31-40  41-50  51-60  61-70  71-80
        at time 10   81-90  11-20  21-30  ...           the bucket of the past is free for the next round

    A bucket of level 0 is due at its last deadline, (i+1)*tick: never early (I1). A bucket of a coarser level is due at
    the start of its span, i*tick; its tasks then move to finer levels (a cascade).

    Source: Kafka TimingWheel; differs: it rounds down, so with a tick over 1 its tasks run early.
    """

    __slots__ = ("buckets", "interval", "level", "reach", "size", "tick")

    def __init__(self, level: int, tick: int, size: int, now: int) -> None:
        self.level = level
        self.tick = tick
        self.size = size
        self.interval = tick * size
        self.buckets = [Bucket(level) for _ in range(size)]
        self.reach = now - now % tick + self.interval  # the last deadline that fits

    def expiration(self, deadline: int) -> int:
        """Return when the bucket that holds *deadline* is processed."""
        start = deadline - 1 - (deadline - 1) % self.tick
        return start + self.tick if self.level == 0 else start

    def turn_to(self, now: int) -> bool:
        """Turn to *now*. Returns: False if the wheel did not move."""
        reach = now - now % self.tick + self.interval
        if reach == self.reach:
            return False
        self.reach = reach
        return True
