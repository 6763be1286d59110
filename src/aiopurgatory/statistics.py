"""What a purgatory tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one purgatory."""

    name: str
    #: Operations that wait now.
    pending: int
    #: Watch entries: an operation under three keys counts three times; with ``purge_interval`` > 0, those of ended
    #: operations count until they are purged.
    watched: int
    #: Keys with watch entries.
    keys: int
    #: Operations that ended so, since the start.
    completed: int
    expired: int
    cancelled: int
    failed: int
    #: Completed by the last try at the deadline: the condition held, and nobody had checked a key of it.
    missed_triggers: int
    #: PurgatoryFullError raised.
    refused: int
    #: Results whose awaiters had all left, given back to on_undelivered().
    undelivered: int
    #: Checks of a watched key. Checks of a key that nothing watches do not count.
    checks: int
    #: Checks of a watched key that ended nothing.
    checks_without_effect: int
    #: Moves to a finer level of the timing wheel.
    cascaded: int
    #: How often the armed sleep of the clock task ended.
    wakeups: int
    #: Sweeps of all lists.
    purges: int
    #: Entries of ended operations that those dropped.
    purged: int
    #: Kafka's estimate of pending + ended-but-listed operations, which triggers purges; ``pending`` without them.
    estimated_total: int
    #: Levels of the timing wheel, and how many of its buckets hold something.
    levels: int
    buckets: int
    #: Operations with a deadline on each level, the finest first.
    pending_by_level: tuple[int, ...]
    #: Seconds that the longest turn of the clock task took.
    longest_turn: float
