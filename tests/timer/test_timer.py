"""The timer's promises one by one: never early, nothing lost, in order, bounded work, even if callbacks misbehave."""

import random
from collections.abc import Callable

import pytest

from aiopurgatory.timer import Timer, TimerTask
from aiopurgatory.timer.delay_queue import NEVER


def nothing(task: TimerTask) -> None:
    pytest.fail(f"expired {task.deadline}")


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


def test_start_at_forgets_the_emptied_buckets() -> None:
    """An old bucket left in the queue would have the same expiration as a new one, and nothing breaks such a tie."""
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


def test_advance_callback_adds_due_task_gets_false() -> None:
    timer = Timer(tick=10)
    answers: list[bool] = []
    added(timer, 15)
    timer.advance(25, lambda _: answers.extend(timer.add(TimerTask(deadline)) for deadline in (15, 20, 21)))
    assert answers == [False, False, True]  # it is 20, on the way to 25
    assert len(timer) == 1


@pytest.mark.parametrize("deadline", [5, 390, 100_000])
def test_cancel_neighbour_inside_expiry_takes_effect(deadline: int) -> None:
    timer = Timer()
    first, second, third, fourth = added(timer, deadline, deadline, deadline, deadline + 1)
    expired: list[TimerTask] = []

    def expire(task: TimerTask) -> None:
        expired.append(task)
        if task is first:
            assert not timer.cancel(first)
            assert timer.cancel(second)
            assert not timer.cancel(second)
            assert timer.cancel(fourth)
            assert len(timer) == 1

    assert timer.advance(deadline + 1, expire) == 2
    assert expired == [first, third]
    assert len(timer) == 0
    assert timer.next_expiration() is None


def test_cancel_and_add_neighbour_inside_expiry_postpones() -> None:
    timer = Timer()
    first, second = added(timer, 5, 5)

    def expire(task: TimerTask) -> None:
        if task is first:
            assert timer.cancel(second)
            second.deadline = 25
            assert timer.add(second)

    assert timer.advance(24, expire) == 1
    assert len(timer) == 1
    assert timer.advance(25, expire) == 1


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


# bounded work: poll


def cascading(count: int) -> tuple[Timer, list[TimerTask]]:
    """A timer, and *count* tasks at 350 ... 359 in one coarse bucket of which three are moved."""
    timer = Timer()
    tasks = added(timer, *(350 + index % 10 for index in range(count)))
    assert timer.poll(359, 3) is None
    assert timer.cascaded == 3
    assert timer.now == 340
    return timer, tasks


def test_next_expiration_half_way_through_cascade_is_now() -> None:
    timer, tasks = cascading(10)
    assert timer.next_expiration() == 340
    for task in tasks[3:]:
        timer.cancel(task)
    assert timer.next_expiration() == 350


def test_cancel_half_way_through_cascade_takes_effect() -> None:
    timer, tasks = cascading(10)
    for task in (tasks[0], tasks[2], tasks[3], tasks[9]):  # two have been moved, two have not
        assert timer.cancel(task)
        assert not timer.cancel(task)
    assert len(timer) == 6
    assert expired_by(timer, 359) == [351, 354, 355, 356, 357, 358]


def test_add_half_way_through_cascade_expires_in_turn() -> None:
    timer, _ = cascading(10)
    assert not timer.add(TimerTask(340))
    added(timer, 341, 355, 360)
    assert expired_by(timer, 360) == [341, 350, 351, 352, 353, 354, 355, 355, 356, 357, 358, 359, 360]


def test_advance_half_way_through_cascade_finishes_it() -> None:
    timer, _ = cascading(10)
    assert timer.advance(300, nothing) == 0  # a time in the past: the tasks are moved, none is due
    assert timer.next_expiration() == 350
    assert expired_by(timer, 355) == [350, 351, 352, 353, 354, 355]


@pytest.mark.parametrize("now", [345, 355])
def test_catch_up_half_way_through_cascade_waits(now: int) -> None:
    timer, _ = cascading(10)
    timer.catch_up(now)
    assert timer.now == 340
    assert expired_by(timer, 352) == [350, 351, 352]
