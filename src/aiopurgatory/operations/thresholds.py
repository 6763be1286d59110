"""Waits for an offset, so that an advance touches those whom it satisfies and nothing else."""

from __future__ import annotations

from .offsets import Offsets


class ThresholdWatchers(Offsets):
    """A value that only grows, and the operations that wait for it to reach their offset.

        async with Purgatory("raft") as purgatory:
            committed = ThresholdWatchers(purgatory, "log")
            wait = asyncio.create_task(committed.reached(2, timeout=30.0))
            await asyncio.sleep(0)
            assert committed.advance(1) == 0  # nothing is tried
            assert committed.advance(5) == 1
            assert await wait == 5

    check_and_complete() tries every operation that waits under a key. With 100,000 producers on one partition and a
    high watermark that advances record by record, that is quadratic. Here each advance tries what it satisfies.

    Args:
        purgatory: where the operations wait.
        key: for messages; the watch keys are ``("offset", key, offset)``.
        start: the value to begin with.

    Raises: TypeError: *start* is no int, or *key* is not hashable.
    Cost: of a wait, the watch and O(log offsets); of an advance, the same per operation that it ends.
    Source: Kafka raft ThresholdPurgatory; differs: it knows its value, so that who comes late does not wait.
    """

    # Interpreted, for the sake of this one method: a compiled coroutine crashes if something odd is thrown into it.
    __slots__ = ()

    async def reached(self, offset: int, *, timeout: float | None) -> int:
        """Wait until the value has reached *offset*.

        Args: timeout: seconds, or None. 0 or less: do not wait.
        Returns: the value.
        Raises: TimeoutError: it was still below at the deadline. What fail() was given. TypeError: *offset* is no
            int. What watch() of the purgatory raises.
        """
        return await self.watch(offset, timeout=timeout)
