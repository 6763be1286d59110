"""Waits for an offset: an advance touches only the waits it satisfies."""

from __future__ import annotations

from ._thresholds import BaseThresholds


class Thresholds(BaseThresholds):
    """A value that only grows, and the operations that wait for it to reach their offset.

        async with Purgatory("raft") as purgatory:
            committed = Thresholds(purgatory, "log")
            wait = asyncio.create_task(committed.reached(2, timeout=30.0))
            await asyncio.sleep(0)
            assert committed.advance(1) == 0  # nothing is tried
            assert committed.advance(5) == 1
            assert await wait == 5

    check_and_complete() tries every operation that waits under a key. With 100,000 producers on one partition and a
    high watermark that advances record by record, that is quadratic. Here an advance tries only the waits that it
    satisfies. ``len()`` counts the waits.

    Args:
        purgatory: holds the operations.
        key: a name for messages; the watch keys are ``("offset", key, offset)``.
        start: the initial value. Default 0.

    Raises: TypeError: *start* is not an int, or *key* is not hashable.
    Cost: a wait, watch() and O(log offsets); an advance, the same per operation that it ends.
    Source: Kafka raft ThresholdPurgatory; differs: it knows its value, so a wait for a reached offset ends at once.
    """

    # Interpreted because of this method: a compiled coroutine crashes if something odd is thrown into it.
    __slots__ = ()

    async def reached(self, offset: int, *, timeout: float | None) -> int:
        """Wait until the value has reached *offset*.

        Args: timeout: seconds, or None for no deadline. 0 or less: do not wait.

        Returns: the value.

        Raises:
            DeadlineError: the value was still below *offset* at the deadline.
            TypeError: *offset* is not an int.
            Exception: the argument of fail(), or raised by watch() of the purgatory.
        """
        return await self.watch(offset, timeout=timeout)
