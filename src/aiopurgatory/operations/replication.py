"""acks=all: a produce is answered once every replica in sync has its records."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from ..errors import PurgatoryError
from ..purgatory import Purgatory
from .arguments import require_int
from .thresholds import ThresholdOperation, ThresholdWatchers

K = TypeVar("K", bound=Hashable)


class NotEnoughReplicasError(PurgatoryError):
    """Fewer replicas are in sync than ``min_in_sync``: what was appended is not safe, though it may survive."""


class Replicas(ThresholdWatchers):
    """What the leader of a partition knows of its replicas: how far each one is, and who waits for them.

        async with Purgatory("produce") as purgatory:
            orders = Replicas(purgatory, "orders", ["leader", "follower"])
            orders.update("leader", 1)  # appended to its own log
            acked = asyncio.create_task(orders.acked(1, timeout=30.0))
            await asyncio.sleep(0)
            orders.update("follower", 1)  # its fetch tells how far it is
            assert await acked == orders.high_watermark == 1

    An offset is that of the next record: at 1, a replica has one. The high watermark is the least offset of those in
    sync; it never moves back, and stands still while they are too few. One replica alone has nobody to wait for.

    Args:
        purgatory, key: as in ThresholdWatchers.
        replicas: their names, the leader's among them; all in sync.
        min_in_sync: with fewer in sync, every wait ends with NotEnoughReplicasError.
        start: where all of them are.

    Raises: ValueError: *replicas* is empty, or *min_in_sync* < 1.

    When leadership is lost, ``fail(exc)``; the next leader starts with a new one.
    Source: Kafka Partition, and KIP-966 for the high watermark that stands still.
    """

    __slots__ = ("_min_in_sync", "_offsets")

    def __init__(
        self, purgatory: Purgatory, key: Hashable, replicas: Iterable[Hashable], *, min_in_sync: int = 1, start: int = 0
    ) -> None:
        super().__init__(purgatory, key, start=start)
        require_int("min_in_sync", min_in_sync, 1)
        if isinstance(replicas, (str, bytes)):
            raise TypeError(f"replicas must be an iterable of names, got the single name {replicas!r}; pass [name]")
        self._offsets = dict.fromkeys(replicas, start)
        if not self._offsets:
            raise ValueError("replicas must name at least one replica, got none")
        self._min_in_sync = min_in_sync
        self._recount()

    @property
    def high_watermark(self) -> int:
        """Up to here, every replica in sync has it."""
        return self.value

    @property
    def in_sync(self) -> Mapping[Hashable, int]:
        """The replicas in sync, and how far each one is; a copy."""
        return self._offsets.copy()

    async def acked(self, offset: int, timeout: float | None = None) -> int:
        """Wait until every replica in sync has all before *offset*.

        Args: timeout: seconds, or None.
        Returns: the high watermark.
        Raises: TimeoutError: not all had it at the deadline; NotEnoughReplicasError; what fail() was given.
        """
        return await self.watch(offset, timeout)

    def update(self, replica: Hashable, offset: int) -> int:
        """*replica* has all before *offset*. Returns: how many waits that ended.

        Raises: ValueError: it is not in sync; add() it.
        """
        require_int("offset", offset)
        self._require_in_sync(replica)
        self._offsets[replica] = offset
        return self._recount()

    def drop(self, replica: Hashable) -> int:
        """*replica* has fallen behind: do not wait for it. Returns: how many waits that ended.

        Raises: ValueError: it is not in sync, or it is the last one that is.
        """
        self._require_in_sync(replica)
        if len(self._offsets) == 1:
            raise ValueError(f"replica must not be the last one in sync, got {replica!r}; if the leader goes, fail()")
        del self._offsets[replica]
        return self._recount()

    def add(self, replica: Hashable, offset: int) -> int:
        """*replica* has caught up to *offset*: it is in sync again. Returns: how many waits that ended.

        Raises: ValueError: it is not there yet, at the high watermark.
        """
        require_int("offset", offset)
        if offset < self.value:
            raise ValueError(f"offset must be >= the high watermark {self.value} to be in sync, got {offset}")
        self._offsets[replica] = offset
        return self._recount()

    def _recount(self) -> int:
        if self._error is not None:
            return 0
        count = len(self._offsets)
        if count >= self._min_in_sync:
            self._obstacle = None
            return self.advance(min(self._offsets.values()))
        found = f"{count} of the replicas of {self.key!r} are in sync"
        self._obstacle = NotEnoughReplicasError(f"{found}, and min_in_sync is {self._min_in_sync}")
        return self._check_all()

    def _require_in_sync(self, replica: Hashable) -> None:
        if replica not in self._offsets:
            raise ValueError(f"replica must be one of {list(self._offsets)!r}, got {replica!r}; add() what caught up")


class DelayedProduce(ThresholdOperation[dict[K, Exception | None]]):
    """Waits for what one request has appended to several partitions. Its result: for each key its error, or None.

    Partitions that have an answer are not asked again. At the deadline the others get a TimeoutError each.
    Source: Kafka DelayedProduce; see produce().
    """

    __slots__ = ("_entered", "_pending", "_results")

    def __init__(
        self, required: Mapping[K, tuple[ThresholdWatchers, int] | Exception], timeout: float | None, *, acks: int = -1
    ) -> None:
        super().__init__(timeout)
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, got {acks!r}")
        self._results: dict[K, Exception | None] = {}
        self._pending: dict[K, tuple[ThresholdWatchers, int]] = {}
        self._entered: tuple[tuple[ThresholdWatchers, int], ...] = ()
        for key, need in required.items():
            self._results[key] = None
            if isinstance(need, Exception):
                self._results[key] = need
            elif acks == -1:
                require_int("offset", need[1])
                self._pending[key] = need
        if not self._results:
            raise ValueError("required must name at least one partition, got none")

    def try_complete(self) -> bool:
        for key, (watchers, offset) in list(self._pending.items()):
            error = watchers.error_for(offset)
            if error is not None or watchers.value >= offset:
                self._results[key] = error
                del self._pending[key]
        return not self._pending and self.force_complete()

    def on_complete(self) -> dict[K, Exception | None]:
        self.leave()
        for key, (_, offset) in self._pending.items():
            self._results[key] = TimeoutError(f"{key!r} was not acked up to {offset} after {self.timeout} s")
        self._pending.clear()
        return self._results

    def leave(self) -> None:
        entered, self._entered = self._entered, ()
        for watchers, offset in entered:
            watchers._leave(offset)

    def watch_in(self, purgatory: Purgatory) -> None:
        """Watch it, unless there is nothing to wait for."""
        for key, (watchers, _) in self._pending.items():
            if watchers.purgatory is not purgatory:
                raise ValueError(f"required must wait in {purgatory!r}, got {key!r} in {watchers.purgatory!r}")
        if self.try_complete():
            return
        self._entered = tuple(self._pending.values())
        for watchers, offset in self._entered:
            watchers._enter(offset)
        try:
            purgatory.watch(self, [("offset", watchers.key, offset) for watchers, offset in self._entered])
        except BaseException:
            self.leave()
            raise


def produce(
    purgatory: Purgatory,
    required: Mapping[K, tuple[ThresholdWatchers, int] | Exception],
    *,
    timeout: float | None,
    acks: int = -1,
) -> DelayedProduce[K]:
    """Answer a request that has appended to several partitions, when all of them have it: ``await produce(...)``.

        async with Purgatory("produce") as purgatory:
            orders = Replicas(purgatory, "orders", ["leader"])
            payments = Replicas(purgatory, "payments", ["leader", "follower"])
            orders.update("leader", 1)
            payments.update("leader", 1)
            required = {"orders": (orders, 1), "payments": (payments, 1)}
            answers = await produce(purgatory, required, timeout=0.01)
            assert answers["orders"] is None
            assert isinstance(answers["payments"], TimeoutError)

    Args:
        purgatory: the one of the partitions.
        required: for each partition, its Replicas (or other ThresholdWatchers) and the offset to reach, the one after
            what was appended; or, if nothing could be appended, the error.
        timeout: seconds, or None.
        acks: -1: of all in sync. 0, 1: of nobody but the leader, so that there is nothing to wait for.

    Returns: the operation, watched; or ended already, and then it was never parked. Its result: the error of each
        partition: a TimeoutError, what its fail() was given, NotEnoughReplicasError; or None.

    Raises: ValueError: *required* is empty or in another purgatory, *acks* is none of those; whatever watch() raises.
    """
    op = DelayedProduce(required, timeout, acks=acks)
    op.watch_in(purgatory)
    return op
