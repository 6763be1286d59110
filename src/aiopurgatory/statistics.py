"""Statistics of a purgatory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one purgatory. Counters start at its creation and never go back.

    Args:
        name: the purgatory's name.
        pending: operations that wait now.
        watched_entries: operations under watch keys: one under three keys counts three times. With ``purge_interval`` >
            0, entries of ended operations count until they are purged.
        keys: keys with watch entries.
        completed: operations that ended COMPLETED.
        expired: operations that ended EXPIRED.
        cancelled: operations that ended CANCELLED.
        failed: operations that ended FAILED.
        missed_triggers: operations completed only by the last try at their deadline: the condition held, but none of
            their keys had been checked. For an awaited condition, the last try is its last read.
        missed_kinds: the same by class and kind of key, as ``("DelayedFetch", "('orders', int)", 3)``. Each kind is
            logged once. The first 20 are counted apart, and further ones as "other".
        refused: operations refused with PurgatoryFullError.
        undelivered: results passed to on_undelivered(), because every awaiting task had been cancelled.
        checks: checks of a watched key. Checks of a key that nothing watches do not count.
        checks_without_effect: checks of a watched key that ended no operation and woke no awaiting task.
        reads: reads that checks called for, of awaited conditions: ``wait_for()``, ``follow()``, polls and streams of
            an awaited Source. Checks during a read lead to one more read. A first read, and the last one at a deadline,
            do not count.
        reads_in_vain: how many of them found nothing, or did not finish. If almost all are, the keys are too
            coarse, or checks come where nothing has changed.
        checks_of_twins: examined checks of a key that nothing watched while something watched its twin: 7 and "7", "7"
            and b"7", a UUID and its text, or the same within a tuple. Of the checks of unwatched keys, the first 1,000
            are examined, then about one in 500. A count above 0 is almost always a mistake.
        cascaded: moves to a finer level of the timing wheel.
        wakeups: how often the timer of the clock task fired.
        purges: sweeps of all watch entries.
        purged: entries of ended operations that those sweeps dropped.
        estimated_total: Kafka's estimate of pending and ended-but-listed operations, which triggers sweeps. With
            ``purge_interval`` 0 it is ``pending``.
        levels: levels of the timing wheel.
        buckets: buckets of the timing wheel that hold something.
        pending_by_level: operations with a deadline, and timeouts, on each level, the finest first.
        timeouts: blocks of code under ``timeout()`` or ``timeout_at()`` before their deadline.
        longest_turn: seconds that the longest turn of the clock task took.
    """

    name: str
    pending: int
    watched_entries: int
    keys: int
    completed: int
    expired: int
    cancelled: int
    failed: int
    missed_triggers: int
    missed_kinds: tuple[tuple[str, str, int], ...]
    refused: int
    undelivered: int
    checks: int
    checks_without_effect: int
    reads: int
    reads_in_vain: int
    checks_of_twins: int
    cascaded: int
    wakeups: int
    purges: int
    purged: int
    estimated_total: int
    levels: int
    buckets: int
    pending_by_level: tuple[int, ...]
    timeouts: int
    longest_turn: float
