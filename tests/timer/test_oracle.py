"""The timer against a sorted list and a brute-force next expiration, over random adds, cancels and jumps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiopurgatory.timer import Timer, TimerTask


class Task(TimerTask):
    """Adds itself again when it expires, as often as there are *waits*, each counted from its last deadline."""

    def __init__(self, deadline: int, waits: tuple[int, ...]) -> None:
        super().__init__(deadline)
        self.waits = waits


class Pending(NamedTuple):
    task: Task
    deadline: int
    added_at: int
    waits: tuple[int, ...]


class Oracle:
    """The timer by its definition, with nothing clever about it: one list, searched each time.

    Level k has buckets of width tick * size**k; bucket i holds i * width < deadline <= (i + 1) * width, and the level
    reaches *size* buckets from the one it is in. A task goes to the lowest level that reaches it. A bucket of level 0
    is due at its end; one of any other level is worked off at its beginning, and its tasks are then placed anew.
    """

    def __init__(self, tick: int, size: int, start: int) -> None:
        self.tick, self.size, self.now = tick, size, start
        self.pending: list[Pending] = []

    def add(self, task: Task, deadline: int, waits: tuple[int, ...]) -> bool:
        if deadline <= self.now:
            return False
        self.pending.append(Pending(task, deadline, self.now, waits))
        return True

    def cancel(self, task: Task) -> bool:
        before = len(self.pending)
        self.pending = [entry for entry in self.pending if entry.task is not task]
        return len(self.pending) < before

    def advance(self, now: int) -> list[tuple[int, Task]]:
        """Return the tasks that expire by *now*, in order of their deadlines rounded up to the tick."""
        expired: list[tuple[int, Task]] = []
        while due := [entry for entry in self.pending if self.rounded(entry) <= now]:
            entry = min(due, key=self.rounded)
            self.pending.remove(entry)
            self.now = self.rounded(entry)
            expired.append((self.now, entry.task))
            if entry.waits:
                self.add(entry.task, entry.deadline + entry.waits[0], entry.waits[1:])
        self.now = max(self.now, now)
        return expired

    def rounded(self, entry: Pending) -> int:
        return -(-entry.deadline // self.tick) * self.tick

    def next_expiration(self) -> int | None:
        return min((self.worked_off(entry) for entry in self.pending), default=None)

    def worked_off(self, entry: Pending) -> int:
        """When the bucket that *entry* is in now is worked off."""
        placed_at = entry.added_at
        while True:
            level, width = 0, self.tick
            while entry.deadline > placed_at // width * width + width * self.size:
                level, width = level + 1, width * self.size
            bucket = (entry.deadline - 1) // width
            if level == 0:
                return (bucket + 1) * width
            if bucket * width > self.now:
                return bucket * width
            placed_at = bucket * width


class Add(NamedTuple):
    after: int
    waits: tuple[int, ...]


class Cancel(NamedTuple):
    which: int


class Advance(NamedTuple):
    gap: int
    limit: int | None  # None: advance(), else poll() with it


class CatchUp(NamedTuple):
    gap: int


def advanced(timer: Timer, now: int, limit: int | None) -> list[Task]:
    """Return the tasks that expire by *now*. Some have added themselves again."""
    expired: list[Task] = []

    def expire(task: TimerTask) -> None:
        assert isinstance(task, Task)
        expired.append(task)
        if task.waits:
            task.deadline += task.waits[0]
            task.waits = task.waits[1:]
            timer.add(task)

    if limit is None:
        assert timer.advance(now, expire) == len(expired)
        return expired
    while True:
        before = timer.cascaded
        task = timer.poll(now, limit)
        assert timer.cascaded - before <= limit
        if isinstance(task, TimerTask):
            expire(task)
        elif (due := timer.next_expiration()) is None or due > now:
            assert timer.advance(now, expire) == 0
            return expired


def by_instant(expired: Iterable[tuple[int, Task]]) -> list[tuple[int, int]]:
    """The tasks by identity; tasks of one instant come in any order."""
    return sorted((instant, id(task)) for instant, task in expired)


near = st.integers(-3, 60)
around_edges = st.builds(
    lambda size, level, off: size**level + off, st.sampled_from([2, 8, 20]), st.integers(1, 6), near
)
spans = near | around_edges | st.integers(0, 10**9)  # often longer than a whole wheel
waits = st.lists(spans, max_size=3).map(tuple)
steps = st.lists(
    st.builds(Add, spans, waits)
    | st.builds(Cancel, st.integers(0, 50))
    | st.builds(Advance, spans, st.none() | st.integers(1, 3))
    | st.builds(CatchUp, spans),
    max_size=60,
)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tick=st.sampled_from([1, 3, 10]),
    size=st.sampled_from([2, 3, 8, 20]),
    start=st.sampled_from([0, 1, 20**5 - 1, 20**5, 2**36, 2**40, 2**62]),
    steps=steps,
)
def test_timer_random_steps_agrees_with_oracle(
    tick: int, size: int, start: int, steps: list[Add | Cancel | Advance | CatchUp]
) -> None:
    timer, oracle = Timer(tick, size, start), Oracle(tick, size, start)
    tasks: list[Task] = []
    for step in steps:
        match step:
            case Add(after, waits):
                tasks.append(Task(timer.now + after, waits))
                assert timer.add(tasks[-1]) == oracle.add(tasks[-1], oracle.now + after, waits)
            case Cancel(which) if tasks:
                task = tasks[which % len(tasks)]
                assert timer.cancel(task) == oracle.cancel(task)
            case Advance(gap, limit):
                now = timer.now + gap
                expected = oracle.advance(now)
                expired = advanced(timer, now, limit)
                instants = [instant for instant, _ in expected]
                assert by_instant(zip(instants, expired, strict=True)) == by_instant(expected)
            case CatchUp(gap):
                due, before = oracle.next_expiration(), timer.now
                timer.catch_up(before + gap)
                oracle.now = timer.now
                assert before <= timer.now <= max(before, before + gap)
                assert due is None or timer.now < due or timer.now == before
        assert len(timer) == len(oracle.pending)
        assert timer.now == oracle.now
        assert timer.next_expiration() == oracle.next_expiration()
