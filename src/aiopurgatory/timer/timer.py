"""The timer: a hierarchy of wheels, and the delay queue that says which bucket is due next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, final

from .delay_queue import DelayQueue
from .ring import Bucket, Entry, deadline_of, tasks_in, unlink
from .wheel import TimingWheel


@final
class Timer:
    """Hierarchical timing wheels: a task is added and cancelled in O(1), and none expires before its deadline.

    Time is an integer in any unit, always passed in; it starts at *start* and never goes back.

    With tick 1 and size 20 the levels reach 20, 400, 8 000, 160 000, 3.2 million, 64 million, ...: with 1 ms that is
    20 ms, 400 ms, 8 s, 160 s, 53 min, 17.8 h. A coarser wheel is made when the first deadline needs it.

    Args:
        tick: width of a bucket on level 0, >= 1 (default 1). Deadlines are rounded up to it.
        wheel_size: buckets per level, >= 2 (default 20).
        start: the current time (default 0).
    """

    # Source: Varghese and Lauck's hierarchical wheels as in Kafka's SystemTimer and TimingWheel. (I9)

    __slots__ = ("_cascading", "_count", "_due", "cascaded", "now", "queue", "wheels")

    def __init__(self, tick: int = 1, wheel_size: int = 20, start: int = 0) -> None:
        if tick < 1:
            raise ValueError(f"tick must be >= 1, got {tick}")
        if wheel_size < 2:
            raise ValueError(f"wheel_size must be >= 2, got {wheel_size}")
        #: The current time.
        self.now = start
        #: The wheels, finest first; for statistics and drawings.
        self.wheels = [TimingWheel(0, tick, wheel_size, start)]
        #: What says which bucket is next; for statistics.
        self.queue = DelayQueue()
        # A due bucket is emptied into one of these two at once, and processed there one task at a time: a callback may
        # add, cancel or raise, and the caller of poll() may stop half-way (I7, I8).
        self._due = Bucket(-1)
        self._cascading = Bucket(-1)
        self._count = 0
        #: Tasks moved to a finer level so far.
        self.cascaded = 0

    def __len__(self) -> int:
        return self._count

    @property
    def levels(self) -> int:
        """Number of wheels made so far."""
        return len(self.wheels)

    def add(self, task: Entry) -> bool:
        """Keep *task* until its deadline.

        Args:
            task: a task that is in no timer. Its ``deadline`` must not change while it is in this one.

        Returns:
            False if it is already due. Then it is not kept, and the caller must expire it.

        Raises:
            ValueError: it is already in a timer.

        Cost: O(levels), and O(log buckets) for the first task of a bucket.
        """
        # Invariants: I1, I4.
        if task._ring_next is not None:
            raise ValueError("task must not be in a timer; cancel it first to give it a new deadline")
        deadline = task._ring_deadline
        if deadline <= self.now:
            return False
        self._place(task, deadline)
        self._count += 1
        return True

    def cancel(self, task: Entry) -> bool:
        """Remove *task*, which must not be in another timer. Returns: False if in none. Cost: O(1)."""
        # Invariants: I6.
        if not unlink(task):
            return False
        self._count -= 1
        return True

    def next_expiration(self) -> int | None:
        """Return when a task next expires or a bucket cascades; None if nothing is pending.

        Exact: emptied buckets do not count. Cost: O(1) amortised.
        """
        # Invariants: I3.
        if not (self._due.is_empty() and self._cascading.is_empty()):
            return self.now
        bucket = self.queue.first()
        return None if bucket is None else bucket.expiration

    def soonest(self) -> int:
        """Return a lower bound of next_expiration(): emptied buckets count. NEVER if none is queued. Cost: O(1)."""
        due, cascading = self._due, self._cascading
        is_working = due._ring_next is not due or cascading._ring_next is not cascading
        return self.now if is_working else self.queue.soonest

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        """Set the clock to *now* and call *expire* with each task that is due.

        Args:
            now: the current time; if it is before the last one, the last one is used.
            expire: called in order of tick-rounded deadline, and within one bucket in order of arrival there.
                The task has left the timer and may be added again. An exception propagates; the other due tasks
                come with the next call.

        Returns:
            How many tasks were due.

        Cost: O(tasks due + tasks cascaded + occupied buckets), at any distance.
        """
        # Invariants: I9, I12, I11.
        expired = 0
        while (task := self.poll(now, sys.maxsize)) is not None:
            expired += 1
            expire(task)
        return expired

    def poll(self, now: int, limit: int) -> Entry | None:
        """One step of advance(): unlink and return the next task that is due by *now*.

        Args:
            limit: how many tasks to cascade at most on the way, so that a caller can bound its turn.

        Returns:
            None if nothing is due, or *limit* was reached. At the limit, next_expiration() <= *now*.
        """
        # Invariants: I8.
        while True:
            task = self._due.pop_first()
            if task is not None:
                self._count -= 1
                return task
            while (task := self._cascading.pop_first()) is not None:
                self._place(task, deadline_of(task))
                self.cascaded += 1
                limit -= 1
                if limit <= 0:
                    return None
            bucket = self.queue.first()
            if bucket is None or bucket.expiration > now:
                self._move(now)
                return None
            # First empty the whole bucket. It may be queued again: tasks added from now on belong to its next round.
            self.queue.pop()
            self._move(bucket.expiration)
            (self._due if bucket.level == 0 else self._cascading).take_all(bucket)

    def catch_up(self, now: int) -> None:
        """Set the clock to *now*, if at least a tick has passed and nothing is due by then. Cost: O(levels).

        Otherwise a deadline added after a quiet time would be placed relative to the last expiration, on too coarse a
        level.
        """
        if now - self.now >= self.wheels[0].tick and self.soonest() > now:
            self._move(now)

    def occupied(self) -> list[tuple[int, int, int, int]]:
        """Return non-empty buckets as (level, first deadline, last deadline, tasks). Cost: O(levels * wheel_size)."""
        found = []
        for wheel in self.wheels:
            for bucket in wheel.buckets:
                if not bucket.is_empty():
                    first = bucket.expiration + 1 - (wheel.tick if wheel.level == 0 else 0)
                    found.append((wheel.level, first, first + wheel.tick - 1, bucket.count))
        return sorted(found)

    def pending_by_level(self) -> tuple[int, ...]:
        """Return the number of tasks on every level, finest first. Cost: O(levels * wheel_size)."""
        return tuple([sum([bucket.count for bucket in wheel.buckets]) for wheel in self.wheels])

    def _place(self, task: Entry, deadline: int) -> None:
        """Put the unlinked *task*, which is not due, into the bucket for its *deadline* as of now.

        If no wheel reaches that far, coarser ones are made.
        """
        for wheel in self.wheels:
            if deadline <= wheel.reach:
                break
        else:
            wheel = self.wheels[-1]
            while deadline > wheel.reach:
                wheel = TimingWheel(wheel.level + 1, wheel.interval, wheel.size, self.now)
                self.wheels.append(wheel)
        bucket = wheel.buckets[(deadline - 1) // wheel.tick % wheel.size]
        bucket.append(task)
        # Within its reach a wheel has one bucket per span of deadlines, so a queued bucket has the right expiration.
        if not bucket.queued:
            self.queue.push(bucket, wheel.expiration(deadline))

    def _move(self, now: int) -> None:
        """Turn the wheels to *now*; nothing may be due before that."""
        if now <= self.now:
            return
        self.now = now
        for wheel in self.wheels:
            if not wheel.turn_to(now):
                break  # coarser wheels do not move either

    def verify(self) -> list[Entry]:
        """Check every structure against every other.

        Returns: the tasks in the timer.
        Raises: AssertionError: names the invariant that does not hold.
        Cost: a walk over everything.
        """
        found: list[Entry] = []
        expirations: list[int] = []
        queued = self.queue.verify()
        assert all(bucket.expiration >= self.now for bucket in queued), "I3: a queued bucket is past"
        for wheel in self.wheels:
            start = wheel.reach - wheel.interval
            assert start <= self.now < start + wheel.tick, f"I9: level {wheel.level} is not at the time"
            for bucket in wheel.buckets:
                assert bucket.queued == (bucket in queued), "I3: a bucket is marked as queued, and is not"
                tasks = tasks_in(bucket)
                assert bucket.queued or not tasks, "I3: a bucket with tasks is not queued"
                self._verify_bucket(wheel, bucket, tasks)
                expirations += [bucket.expiration for _ in tasks]
                found += tasks
        for working in (self._due, self._cascading):
            tasks = tasks_in(working)
            expirations += [self.now for _ in tasks]
            found += tasks
        assert len(found) == self._count, f"I5: the timer counts {self._count} tasks and holds {len(found)}"
        assert len(found) == sum(self.pending_by_level()), "I5: the buckets count more tasks, or fewer"
        exact = self.next_expiration() == min(expirations, default=None)
        assert exact, "I3: next_expiration() is not the earliest bucket"
        return found

    def _verify_bucket(self, wheel: TimingWheel, bucket: Bucket, tasks: list[Entry]) -> None:
        first = bucket.expiration - (wheel.tick if wheel.level == 0 else 0)
        for task in tasks:
            deadline = deadline_of(task)
            assert first < deadline <= first + wheel.tick, f"I1: deadline {deadline} is in a wrong bucket"
            assert task._ring_bucket is bucket, "I5: a task is counted by another bucket"
