"""The timer against a sorted list and a brute-force next expiration, over random adds, cancels, steps and jumps."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiopurgatory.timer import Timer, TimerTask


class Task(TimerTask):
    """Adds itself again when it expires, as often as there are *waits*, each counted from its last deadline."""

    def __init__(self, deadline: int, waits: tuple[int, ...]) -> None:
        super().__init__(deadline)
        self.waits = waits


class Pending(NamedTuple):
    deadline: int
    added_at: int


class Oracle:
    """The timer by its definition, with nothing clever about it: one list, searched each time.

    Level k has buckets of width tick * size**k; bucket i holds i * width < deadline <= (i + 1) * width, and the level
    reaches *size* buckets from the one it is in. A task goes to the lowest level that reaches it. A bucket of level 0
    is due at its end; one of any other level is worked off at its beginning, and its tasks are then placed anew.
    """

    def __init__(self, tick: int, size: int, start: int) -> None:
        self.tick, self.size, self.now = tick, size, start
        self.pending: dict[Task, Pending] = {}

    def add(self, task: Task) -> bool:
        if task.deadline > self.now:
            self.pending[task] = Pending(task.deadline, self.now)
        return task.deadline > self.now

    def cancel(self, task: Task) -> bool:
        return self.pending.pop(task, None) is not None

    def expire(self, task: Task) -> None:
        """*task* is one of the first that are due; which, is open."""
        self.now = min(map(self.rounded, self.pending.values()))
        assert self.rounded(self.pending.pop(task)) == self.now

    def reach(self, now: int) -> None:
        """Nothing is left that is due by *now*."""
        self.now = max(self.now, now)
        assert all(self.rounded(entry) > self.now for entry in self.pending.values())

    def rounded(self, entry: Pending) -> int:
        return -(-entry.deadline // self.tick) * self.tick

    def next_expiration(self) -> int | None:
        return min(map(self.worked_off, self.pending.values()), default=None)

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
    """Tasks whose deadlines follow on each other."""

    many: int
    after: int
    waits: tuple[int, ...]


class Again(NamedTuple):
    """A task that has left the timer is added once more."""

    which: int
    after: int


class Cancel(NamedTuple):
    which: int


class Advance(NamedTuple):
    gap: int


class Poll(NamedTuple):
    """Some steps of an advance: tasks of an instant may be left, and a bucket half cascaded."""

    gap: int
    limit: int
    times: int


class CatchUp(NamedTuple):
    gap: int


Step: TypeAlias = Add | Again | Cancel | Advance | Poll | CatchUp


class Both:
    """The timer and the oracle, which take the same steps."""

    def __init__(self, tick: int, size: int, start: int) -> None:
        self.timer, self.oracle = Timer(tick, size, start), Oracle(tick, size, start)
        self.tasks: list[Task] = []
        self.expired = 0
        #: A bucket may be left at this instant, or half of one.
        self.is_between = False

    def take(self, step: Step) -> None:
        timer = self.timer
        match step:
            case Add(many, after, waits):
                for number in range(many):
                    self.tasks.append(Task(timer.now + after + number, waits))
                    self.add(self.tasks[-1])
            case Again(which, after) if self.tasks:
                task = self.tasks[which % len(self.tasks)]
                if task not in self.oracle.pending:
                    task.deadline = timer.now + after
                    self.add(task)
            case Cancel(which) if self.tasks:
                task = self.tasks[which % len(self.tasks)]
                assert timer.cancel(task) == self.oracle.cancel(task)
            case Advance(gap):
                now, before = timer.now + gap, self.expired
                assert timer.advance(now, self.expire) == self.expired - before
                self.oracle.reach(now)
                self.is_between = False
            case Poll(gap, limit, times):
                now = timer.now + gap
                for _ in range(times):
                    self.poll(now, limit)
                timer.verify()
            case CatchUp(gap):
                due, before = timer.next_expiration(), timer.now
                timer.catch_up(before + gap)
                self.oracle.now = timer.now
                assert before <= timer.now <= max(before, before + gap)
                assert due is None or timer.now < due or timer.now == before

    def add(self, task: Task) -> None:
        assert self.timer.add(task) == self.oracle.add(task)

    def poll(self, now: int, limit: int) -> None:
        before = self.timer.cascaded
        task = self.timer.poll(now, limit)
        cascaded = self.timer.cascaded - before
        assert cascaded <= limit
        self.is_between = task is not None or cascaded == limit
        if task is not None:
            self.expire(task)
        else:
            self.oracle.reach(self.timer.now if self.is_between else now)

    def expire(self, task: Any) -> None:
        self.expired += 1
        self.oracle.expire(task)
        if task.waits:
            task.deadline += task.waits[0]
            task.waits = task.waits[1:]
            self.add(task)

    def agree(self) -> None:
        assert len(self.timer) == len(self.oracle.pending)
        assert self.timer.now == self.oracle.now
        expected = self.oracle.next_expiration()
        assert self.timer.next_expiration() in (expected, self.timer.now if self.is_between else expected)


near = st.integers(-3, 60)
around_edges = st.builds(
    lambda size, level, off: size**level + off, st.sampled_from([2, 8, 20]), st.integers(1, 6), near
)
spans = near | around_edges | st.integers(0, 10**9)  # often longer than a whole wheel
waits = st.lists(spans, max_size=3).map(tuple)
which = st.integers(0, 50)
steps = st.lists(
    st.builds(Add, st.integers(1, 5), spans, waits)
    | st.builds(Again, which, spans)
    | st.builds(Cancel, which)
    | st.builds(Advance, spans)
    | st.builds(Poll, spans, st.integers(1, 3), st.integers(1, 20))
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
def test_timer_random_steps_agrees_with_oracle(tick: int, size: int, start: int, steps: list[Step]) -> None:
    both = Both(tick, size, start)
    for step in steps:
        both.take(step)
        both.agree()
    both.timer.verify()
