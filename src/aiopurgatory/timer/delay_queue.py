"""The delay queue: which bucket is next. It holds buckets, not tasks, so it stays small however many are pending."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, final

from .ring import Bucket

#: Later than anything, in any unit.
NEVER: Final = 1 << 256


@final
class DelayQueue:
    """Buckets in order of expiration.

    A bucket is pushed when it gets its first task, and stays queued when its tasks leave: refilling it pushes nothing.
    An emptied bucket is dropped when it reaches the front, so it never wakes the clock (I3).

    Source: Kafka SystemTimer's DelayQueue of TimerTaskList; differs: an emptied bucket does not count.
    """

    __slots__ = ("heap", "operations", "soonest")

    def __init__(self) -> None:
        #: Expiration, level and bucket. Two buckets of one level never share an expiration, so comparison stops before
        #: the third item.
        self.heap: list[tuple[int, int, Bucket]] = []
        #: Pushes and pops so far.
        self.operations = 0
        #: The expiration at the front, emptied or not; NEVER if there is none.
        self.soonest = NEVER

    def push(self, bucket: Bucket, expiration: int) -> None:
        """Queue *bucket* for *expiration*. Cost: O(log buckets)."""
        bucket.expiration = expiration
        bucket.queued = True
        self.operations += 1
        # The level breaks ties: tasks due at an instant (level 0) go before tasks that only cascade then.
        heappush(self.heap, (expiration, bucket.level, bucket))
        if expiration < self.soonest:
            self.soonest = expiration

    def first(self) -> Bucket | None:
        """The non-empty bucket with the earliest expiration, or None. Cost: O(1) amortised."""
        heap = self.heap
        while heap:
            bucket = heap[0][2]
            if not bucket.is_empty():
                return bucket
            self.pop()
        return None

    def pop(self) -> None:
        """Drop the bucket at the front."""
        self.operations += 1
        heap = self.heap
        heappop(heap)[2].queued = False
        self.soonest = heap[0][0] if heap else NEVER

    def verify(self) -> list[Bucket]:
        """Return the queued buckets. Raises: AssertionError: one is queued twice, or for a wrong time (I3)."""
        buckets = [bucket for _, _, bucket in self.heap]
        assert self.soonest == (self.heap[0][0] if self.heap else NEVER), "I3: the front of the queue is miscounted"
        assert len({id(bucket) for bucket in buckets}) == len(buckets), "I3: a bucket is queued twice"
        for expiration, level, bucket in self.heap:
            assert expiration == bucket.expiration, "I3: a queued bucket changed its time"
            assert level == bucket.level, "I3: a queued bucket changed its level"
            assert bucket.queued, "I3: a queued bucket is not marked as queued"
        return buckets
