"""The timer's promises one by one: never early, nothing lost, in order, bounded work, even if callbacks misbehave."""

import random
from collections.abc import Callable

import pytest

from aiopurgatory.timer import Timer, TimerTask


def added(timer: Timer, *deadlines: int) -> list[TimerTask]:
    tasks = [TimerTask(deadline) for deadline in deadlines]
    for task in tasks:
        assert timer.add(task)
    return tasks


def expired_by(timer: Timer, now: int) -> list[int]:
    """The deadlines that expire on the way to *now*."""
    expired: list[TimerTask] = []
    assert timer.advance(now, expired.append) == len(expired)
    return [task.deadline for task in expired]


# counts


def test_pending_by_level_follows_tasks_down_and_out() -> None:
    timer = Timer(tick=1, wheel_size=10)
    *_, cancelled = added(timer, 5, 25, 25, 26)
    assert timer.pending_by_level() == (1, 3)
    timer.cancel(cancelled)
    assert timer.pending_by_level() == (1, 2)
    assert expired_by(timer, 20) == [5]
    assert timer.pending_by_level() == (2, 0)
    inside: list[tuple[int, ...]] = []
    timer.advance(25, lambda task: inside.append(timer.pending_by_level()))
    assert inside == [(1, 0), (0, 0)]


def test_queue_operations_counts_pushes_and_pops() -> None:
    timer = Timer(tick=1, wheel_size=10)
    first, second, third = TimerTask(5), TimerTask(5), TimerTask(7)
    for task in (first, second, third):
        assert timer.add(task)
    assert timer.queue.operations == 2  # a push per bucket and not per task
    assert timer.cancel(third)
    assert timer.queue.operations == 2  # its bucket stays queued
    assert timer.advance(5, [].append) == 2
    assert timer.queue.operations == 4  # one due, one emptied
    assert timer.next_expiration() is None
    assert timer.queue.operations == 4


# arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Timer(tick=0), r"tick must be >= 1, got 0"),
        (lambda: Timer(tick=-10), r"tick must be >= 1, got -10"),
        (lambda: Timer(wheel_size=1), r"wheel_size must be >= 2, got 1"),
        (lambda: Timer(wheel_size=-20), r"wheel_size must be >= 2, got -20"),
    ],
)
def test_init_bad_argument_names_rule_and_value(make: Callable[[], Timer], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()


# add, cancel, len


@pytest.mark.parametrize("other", [False, True])
def test_add_linked_task_is_refused_and_left_in_place(other: bool) -> None:
    timer = Timer()
    before, task, after = added(timer, 300, 300, 300)
    refusing = Timer() if other else timer
    with pytest.raises(ValueError, match="task must not be in a timer"):
        refusing.add(task)
    assert len(timer) == 3
    assert timer.occupied() == [(1, 281, 300, 3)]
    expired: list[TimerTask] = []
    assert timer.advance(300, expired.append) == 3
    assert expired == [before, task, after]


# order


def test_advance_over_levels_goes_by_rounded_deadline() -> None:
    timer = Timer(tick=10)
    draw = random.Random(2)
    deadlines = [draw.randint(1, 20**level) for level in range(1, 7) for _ in range(200)]
    tasks = added(timer, *deadlines)
    expired: list[TimerTask] = []
    timer.advance(64_000_000, expired.append)
    assert expired == sorted(tasks, key=lambda task: -(-task.deadline // 10))  # stable: FIFO within a bucket


# callbacks


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_advance_callback_raises_loses_nothing(error: type[BaseException]) -> None:
    timer = Timer()
    added(timer, 300, 300, 300, 300, 301, 9_000)
    expired: list[int] = []

    def expire(task: TimerTask) -> None:
        expired.append(task.deadline)
        if len(expired) in (2, 4):
            raise error

    with pytest.raises(error):
        timer.advance(300, expire)
    assert (expired, len(timer)) == ([300] * 2, 4)
    assert timer.next_expiration() == 300  # there is something to do at once
    with pytest.raises(error):
        timer.advance(300, expire)
    assert timer.advance(300, expire) == 0
    assert timer.next_expiration() == 301
    assert timer.advance(9_000, expire) == 2
    assert expired == [300] * 4 + [301, 9_000]


# placements worked out by hand, in the literature on Kafka's timer: 10 s x 8 buckets


def spans(timer: Timer) -> list[tuple[int, int, int]]:
    """The occupied buckets, without how full they are."""
    return [(level, first, last) for level, first, last, _ in timer.occupied()]


def test_add_ten_seconds_eight_buckets_places_as_drawn() -> None:
    timer = Timer(tick=10, wheel_size=8)
    added(timer, 35, 36, 38, 12, 18, 69, 62, 65, 53, 54)
    assert [tasks for *_, tasks in timer.occupied()] == [2, 3, 2, 3]
    assert timer.levels == 1
    assert spans(timer) == [(0, 11, 20), (0, 31, 40), (0, 51, 60), (0, 61, 70)]
    added(timer, 100)
    assert timer.levels == 2
    assert spans(timer)[4:] == [(1, 81, 160)]
    added(timer, 700)
    assert timer.levels == 3
    assert spans(timer)[5:] == [(2, 641, 1280)]


def test_advance_700_s_cascades_at_640_and_fires_at_700() -> None:
    timer = Timer(tick=10, wheel_size=8)
    added(timer, 700)
    assert timer.next_expiration() == 640
    assert expired_by(timer, 639) == []
    assert spans(timer) == [(2, 641, 1280)]
    assert expired_by(timer, 640) == []
    assert spans(timer) == [(0, 691, 700)]
    assert timer.next_expiration() == 700
    assert expired_by(timer, 699) == []
    assert expired_by(timer, 700) == [700]
    assert timer.next_expiration() is None


def test_add_of_the_last_deadline_in_reach_makes_no_level_more() -> None:
    for levels in range(1, 7):
        timer = Timer()
        added(timer, 20**levels)
        assert timer.levels == levels
        assert spans(timer) == [(levels - 1, 20**levels - 20 ** (levels - 1) + 1, 20**levels)]
