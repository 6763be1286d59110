"""acks=all: a produce is answered once every replica in sync has its records."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, cast

from ..purgatory import Purgatory
from .in_sync import InSync, waits_of
from .produce_wait import DelayedProduce
from .thresholds import ThresholdWatchers

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Hashable)


class Replicas(InSync, Generic[R]):
    """The offsets of the replicas of a partition, as its leader knows them, and the requests that wait for them.

        async with Purgatory("produce") as purgatory:
            orders = Replicas(purgatory, "orders", ["leader", "follower"])
            orders.update("leader", 1)  # appended to its own log
            acked = asyncio.create_task(orders.acked(1, timeout=30.0))
            await asyncio.sleep(0)
            orders.update("follower", 1)  # its fetch tells how far it is
            assert await acked == orders.high_watermark == 1

    An offset is that of the next record: at 1, a replica has one. No follower is ahead of the leader. The high
    watermark is the lowest offset of the replicas in sync. It never moves back, and stands still while fewer than
    ``min_in_sync`` are in sync. A leader alone has nothing to wait for.

    For acks=all, ask error_for() before an append: while it returns NotEnoughReplicasError, append nothing. produce()
    shows how.

    Args:
        purgatory: where the requests wait.
        key: of the partition; for messages and watch keys, as in ThresholdWatchers.
        replicas: their names. The first one is the leader. All are in sync.
        min_in_sync: with fewer in sync, every wait ends with NotEnoughReplicasError.
        start: the offset of each.

    Raises: TypeError: an argument of another type, or *replicas* a set, which has no first. ValueError: *replicas* is
        empty, or *min_in_sync* < 1.

    When leadership is lost, call ``fail(exc)``; the next leader starts with a new one.

    Cost: of update(), O(replicas), and of the waits that it ends as in ThresholdWatchers.
    Source: Kafka Partition, and KIP-966 for the high watermark that stands still.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the same methods, with the type of the replicas' names

        def __init__(
            self,
            purgatory: Purgatory,
            key: Hashable,
            replicas: Iterable[R],
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
        """Wait until every replica in sync has every record before *offset*.

        Args: timeout: seconds, or None. 0 or less: do not wait.
        Returns: the high watermark.
        Raises: TimeoutError: not all had it at the deadline. NotEnoughReplicasError. What fail() was given. TypeError:
            *offset* is no int. What watch() of the purgatory raises.
        """
        return await waits_of(self).watch(offset, timeout=timeout)


async def produce(
    purgatory: Purgatory,
    required: Mapping[K, tuple[Replicas[Any] | ThresholdWatchers, int] | Exception],
    *,
    timeout: float | None,
    acks: int = -1,
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
        purgatory: the one that the partitions wait in.
        required: for each partition, its Replicas (or ThresholdWatchers) and the offset to reach, the one after what
            was appended; or the error, if nothing could be appended.
        timeout: seconds, or None. 0 or less: do not wait.
        acks: -1: wait for all replicas in sync. 0 or 1: for none but the leader, and so not at all.

    Returns: the error of each partition, or None: a TimeoutError, what its fail() was given, NotEnoughReplicasError,
        or what *required* holds.
    Raises: TypeError: an argument of another type. ValueError: *required* is empty or waits in another purgatory;
        *acks* is none of those. What watch() of the purgatory raises.
    Cost: one operation; a try looks at the partitions that have no answer yet.
    Source: Kafka DelayedProduce.
    """
    # No name for the operation: what is raised keeps this frame, and the operation keeps what is raised.
    return await DelayedProduce(cast("Mapping[Hashable, object]", required), timeout, acks).watch_in(purgatory)
