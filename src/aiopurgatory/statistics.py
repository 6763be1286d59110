"""What a purgatory tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one purgatory. Counts of what happened are since it was made.

    Args:
        name: its name.
        pending: operations that wait now.
        watched: watch entries: an operation under three keys counts three times; with ``purge_interval`` > 0, those of
            ended operations count until they are purged.
        keys: keys with watch entries.
        completed, expired, cancelled, failed: operations that ended so.
        missed_triggers: completed by the last try at the deadline: the condition held, and nobody had checked a key.
        refused: PurgatoryFullError raised.
        undelivered: results whose awaiters had all left, given back to on_undelivered().
        checks: checks of a watched key. Checks of a key that nothing watches do not count.
        checks_without_effect: checks of a watched key that ended nothing.
        cascaded: moves to a finer level of the timing wheel.
        wakeups: how often the armed sleep of the clock task ended.
        purges: sweeps of all lists.
        purged: entries of ended operations that those dropped.
        estimated_total: Kafka's estimate of pending + ended-but-listed operations, which triggers purges; ``pending``
            without them.
        levels, buckets: levels of the timing wheel, and how many of its buckets hold something.
        pending_by_level: operations with a deadline on each level, the finest first.
        longest_turn: seconds that the longest turn of the clock task took.
    """

    name: str
    pending: int
    watched: int
    keys: int
    completed: int
    expired: int
    cancelled: int
    failed: int
    missed_triggers: int
    refused: int
    undelivered: int
    checks: int
    checks_without_effect: int
    cascaded: int
    wakeups: int
    purges: int
    purged: int
    estimated_total: int
    levels: int
    buckets: int
    pending_by_level: tuple[int, ...]
    longest_turn: float
