"""Tests for mutants that survived all others: details of the timer that matter, and that nothing else would miss."""

from __future__ import annotations

from aiopurgatory.timer import Timer, TimerTask
from aiopurgatory.timer.delay_queue import NEVER


def test_start_at_forgets_the_emptied_buckets() -> None:
    """One that was left in the queue would have the expiration of the new wheel's: a tie that nothing breaks."""
    timer = Timer(tick=10, wheel_size=4)
    task = TimerTask(25)
    assert timer.add(task)
    assert timer.cancel(task)
    assert [entry[:2] for entry in timer.queued()] == [(30, 0)]
    timer.start_at(0)
    assert (timer.queued(), timer.soonest(), timer.next_expiration()) == ([], NEVER, None)
    assert timer.add(task)
    assert timer.next_expiration() == 30
    assert timer.verify() == [task]
    expired: list[TimerTask] = []
    assert timer.advance(29, expired.append) == 0
    assert timer.advance(30, expired.append) == 1
    assert expired == [task]


def test_heap_operations_counts_pushes_and_pops() -> None:
    timer = Timer(tick=1, wheel_size=10)
    first, second, third = TimerTask(5), TimerTask(5), TimerTask(7)
    for task in (first, second, third):
        assert timer.add(task)
    assert timer.heap_operations == 2  # a push per bucket and not per task
    assert timer.cancel(third)
    assert timer.heap_operations == 2  # its bucket stays queued
    assert timer.advance(5, [].append) == 2
    assert timer.heap_operations == 4  # one due, one emptied
    assert timer.next_expiration() is None
    assert timer.heap_operations == 4
