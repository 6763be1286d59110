"""acks=all: a produce is answered once every in-sync replica has its records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar

from ..arguments import Items
from ..purgatory import Purgatory
from ._replication import BaseReplicas, DelayedProduce
from .thresholds import Thresholds

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Hashable)


class Replicas(BaseReplicas, Generic[R]):
    """The offsets of a partition's replicas, as its leader knows them, and the requests that wait for them.

        async with Purgatory("produce") as purgatory:
            orders = Replicas(purgatory, "orders", ["leader", "follower"])
            orders.update("leader", 1)  # appended to its own log
            acked = asyncio.create_task(orders.acked(1, timeout=30.0))
            await asyncio.sleep(0)
            orders.update("follower", 1)  # its fetch tells how far it is
            assert await acked == orders.high_watermark == 1

    An offset is the number of the next record: a replica at offset 1 has one record. No follower is ahead of the
    leader. The high watermark is the lowest offset of the in-sync replicas. It never moves back, and stands still while
    fewer than ``min_in_sync`` are in sync. A leader alone has nothing to wait for.

    For acks=all, call error_for() before an append: while it returns NotEnoughReplicasError, append nothing. produce()
    shows how. When leadership is lost, call ``fail(exc)``; the next leader starts with a new object.

    Args:
        purgatory: holds the requests.
        key: the partition's key, for messages and watch keys, as in Thresholds.
        replicas: their names, the leader first. All are in sync at the start.
        min_in_sync: with fewer in sync, every wait fails with NotEnoughReplicasError. Default 1.
        start: the offset that each starts at. Default 0.

    Raises:
        TypeError: an argument has the wrong type, or *replicas* is a set, which has no order.
        ValueError: *replicas* is empty, or *min_in_sync* < 1.

    Cost: update(), O(replicas), and for each wait that it ends as in Thresholds.
    """

    # Source: Kafka Partition, and KIP-966 for the high watermark that stands still.

    __slots__ = ()

    if TYPE_CHECKING:  # the same methods, with the type of the replicas' names

        def __init__(
            self,
            purgatory: Purgatory,
            key: Hashable,
            replicas: Items[R],
            *,
            min_in_sync: SupportsIndex = 1,
            start: SupportsIndex = 0,
        ) -> None: ...

        @property
        def in_sync(self) -> Mapping[R, int]: ...

        def update(self, replica: R, offset: SupportsIndex) -> int: ...

        def drop(self, replica: R) -> int: ...

        def add(self, replica: R, offset: SupportsIndex) -> int: ...

    async def acked(self, offset: int, *, timeout: float | None) -> int:
        """Wait until every in-sync replica has every record before *offset*.

        Args: timeout: seconds, or None for no deadline. 0 or less: do not wait.

        Returns: the high watermark.

        Raises:
            DeadlineError: not all had it at the deadline.
            NotEnoughReplicasError: fewer than min_in_sync replicas are in sync.
            TypeError: *offset* is not an int.
            Exception: the argument of fail(), or raised by watch() of the purgatory.
        """
        return await self._waits.reached(offset, timeout=timeout)


async def produce(
    purgatory: Purgatory,
    required: Mapping[K, tuple[Replicas[Any] | Thresholds, int] | Exception],
    *,
    timeout: float | None,
) -> dict[K, Exception | None]:
    """Answer a request that has appended to several partitions, once all of them are acked.

        async with Purgatory("produce") as purgatory:
            partitions = {
                "orders": Replicas(purgatory, "orders", ["leader"]),
                "payments": Replicas(purgatory, "payments", ["leader", "follower"]),
                "users": Replicas(purgatory, "users", ["leader"], min_in_sync=2),
            }
            required = {}
            for name, replicas in partitions.items():
                end = replicas.in_sync["leader"] + 1  # after the append of one record
                error = replicas.error_for(end)
                if error is None:  # else it could not be acked, and nothing is appended
                    replicas.update("leader", end)
                required[name] = (replicas, end) if error is None else error
            answers = await produce(purgatory, required, timeout=0.01)
            assert answers["orders"] is None
            assert isinstance(answers["payments"], TimeoutError)
            assert isinstance(answers["users"], NotEnoughReplicasError)
            assert partitions["users"].in_sync["leader"] == 0

    Args:
        purgatory: the purgatory of all the partitions.
        required: for each partition, its Replicas (or Thresholds) and the offset to reach, which follows the
            last record appended; or the error, if nothing could be appended.
        timeout: seconds, or None for no deadline. 0 or less: do not wait.

    Returns: for each partition None if it is acked, else its error.

    The error is a DeadlineError, NotEnoughReplicasError, the argument of fail(), or the one in *required*. Errors are
    returned because each partition has its own answer: raising one error would hide the others.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: *required* is empty or belongs to another purgatory.
        Exception: raised by watch() of the purgatory.

    Cost: one operation; a try visits the partitions that have no answer yet.
    """
    # Source: Kafka DelayedProduce.
    # No variable holds the operation: an exception keeps this frame, and the operation keeps the exception.
    return await DelayedProduce(required, timeout).watch_in(purgatory)
