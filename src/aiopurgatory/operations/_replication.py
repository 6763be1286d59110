"""The compiled halves of Replicas and produce(): the offsets of in-sync replicas, and a wait for several partitions."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping
from typing import Any, Final, SupportsIndex, final

from mypy_extensions import mypyc_attr

from ..arguments import described, require_int, require_items
from ..core.kit import AwaitableOperation, Failure, Outcome, is_pending, park_awaited
from ..delayed_operation import wait
from ..errors import DeadlineError, PurgatoryError
from ..purgatory import Purgatory
from .thresholds import (
    Collection,
    Thresholds,
    as_int,
    check_every_offset,
    error_at,
    key_of,
    leave,
    raise_value,
    refuse_other_thread,
)


class NotEnoughReplicasError(PurgatoryError):
    """Fewer replicas are in sync than ``min_in_sync``.

    Returned by error_for() before an append: append nothing. Raised by a wait: the appended records are not safe,
    though they may survive.
    """


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseReplicas(Collection):
    """The methods of Replicas that are not coroutines; see Replicas."""

    __slots__ = ("_leader", "_min_in_sync", "_offsets", "_waits")

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        replicas: Iterable[Any],
        *,
        min_in_sync: SupportsIndex = 1,
        start: SupportsIndex = 0,
    ) -> None:
        super().__init__(purgatory, key)
        self._waits: Final = Thresholds(purgatory, key, start=start)
        self._min_in_sync: Final = require_int("min_in_sync", min_in_sync, 1)
        require_items("replicas", replicas, "name")
        if isinstance(replicas, (set, frozenset)):
            raise TypeError(f"replicas must have an order, the leader first, got the set {described(replicas)}")
        names = list(replicas)
        if not names:
            raise ValueError("replicas must name at least one replica, got none")
        self._leader: Final = names[0]
        self._offsets: Final[dict[Hashable, int]] = dict.fromkeys(names, self._waits.value)
        recount(self)

    def __repr__(self) -> str:
        counts = f"high_watermark={self.high_watermark} in_sync={len(self._offsets)} waiting={len(self._waits)}"
        return f"<{type(self).__name__} {described(self.key)} {counts}>"

    @property
    def high_watermark(self) -> int:
        """Every in-sync replica has all records before this offset."""
        return self._waits.value

    @property
    def in_sync(self) -> Mapping[Any, int]:
        """The offset of each in-sync replica; a copy."""
        return self._offsets.copy()

    def error_for(self, offset: SupportsIndex) -> Exception | None:
        """Return the error that a wait for *offset* would raise now, DeadlineError aside; None if there is none.

        Call it before an append, with the offset that the append would reach. If it returns an error, append nothing.

        Raises: TypeError: *offset* is not an int.
        """
        # Source: Kafka Partition.appendRecordsToLeader.
        return error_at(self._waits, as_int("offset", offset))

    def update(self, replica: Any, offset: SupportsIndex) -> int:
        """Note that *replica* has every record before *offset*, and complete the waits that this satisfies.

        Returns: how many waits ended; 0 if called from a hook during a check, which postpones it.

        Raises:
            TypeError: *offset* is not an int.
            ValueError: *replica* is not in sync, is a follower ahead of the leader, or is the leader going back.
            RuntimeError: called from another thread, while something waits for it.
        """
        # Invariants: I7.
        if replica not in self._offsets:
            raise ValueError(
                f"{described(replica)} is not in sync; in sync are {described(list(self._offsets))}; call add() once "
                "it has caught up"
            )
        move(self, replica, as_int("offset", offset))
        return recount(self)

    def drop(self, replica: Any) -> int:
        """Stop waiting for the follower *replica*, which has fallen behind.

        Returns: how many waits ended, as in update().
        Raises: ValueError: it is not in sync, or it is the leader.
        """
        if replica not in self._offsets:
            raise ValueError(
                f"cannot drop {described(replica)}, which is not in sync; in sync are {described(list(self._offsets))}"
            )
        if replica == self._leader:
            raise ValueError(f"cannot drop {described(replica)}, the leader; call fail() if the leader is gone")
        refuse_other_thread(self._waits)
        del self._offsets[replica]
        return recount(self)

    def add(self, replica: Any, offset: SupportsIndex) -> int:
        """Wait for *replica* as well, which has caught up to *offset*.

        Returns: how many waits ended, as in update().
        Raises: TypeError: *offset* is not an int. ValueError: it is below the high watermark, or above the leader's.
        """
        caught_up = as_int("offset", offset)
        if caught_up < self.high_watermark:
            raise ValueError(
                f"{described(replica)} is not in sync at offset {caught_up}; it must reach {self.high_watermark}, "
                "the high watermark"
            )
        move(self, replica, caught_up)
        return recount(self)

    def fail(self, exc: Exception) -> int:
        """Fail every wait, now and later, with *exc*. Call it when this replica is no longer the leader.

        Returns: how many waits ended, as in update().

        Raises:
            TypeError: *exc* is not an instance of Exception, or is a StopIteration.
            RuntimeError: called from another thread, while something waits.
        """
        return self._waits.fail(exc)


def move(replicas: BaseReplicas, replica: Any, offset: int) -> None:
    leader = replicas._leader
    end = replicas._offsets[leader]
    if replica == leader:
        if offset < end:
            raise ValueError(f"the leader {described(leader)} cannot go back from offset {end} to {offset}")
    elif offset > end:
        raise ValueError(
            f"{described(replica)} cannot be at offset {offset}, ahead of the leader {described(leader)} at {end}; "
            "update the leader first"
        )
    refuse_other_thread(replicas._waits)
    replicas._offsets[replica] = offset


def recount(replicas: BaseReplicas) -> int:
    """Advance the high watermark to the new offsets, or fail the waits. Returns: how many ended."""
    waits, least = replicas._waits, replicas._min_in_sync
    if waits._has_failed:
        return 0
    count = len(replicas._offsets)
    if count >= least:
        waits._failure = None
        return raise_value(waits, min(replicas._offsets.values()))
    found = f"too few in-sync replicas of {described(waits.key)}: {count} (min_in_sync={least})"
    waits._failure = Failure(NotEnoughReplicasError(found))  # until there are enough
    return check_every_offset(waits)


# several partitions


@final
class DelayedProduce(AwaitableOperation):
    """Waits until a request's appends are acked; see produce(). Its result: the error of each partition, or None.

    At the deadline, the partitions without an answer get a DeadlineError each. A timeout of 0 means one try.
    """

    __slots__ = ("_answers", "_entered", "_needs")

    def __init__(self, required: Mapping[Any, object], timeout: Any) -> None:
        super().__init__(timeout)
        if not required:
            raise ValueError("required must name at least one partition, got none")
        self._answers: Final[dict[Hashable, Exception | None]] = {}
        #: Of the partitions without an answer: the thresholds, and the offset to reach.
        self._needs: Final[dict[Hashable, tuple[Thresholds, int]]] = {}
        for key, need in required.items():
            self._answers[key] = need if isinstance(need, Exception) else None
            if not isinstance(need, Exception):
                self._needs[key] = checked_need(key, need)
        self._entered: list[tuple[Thresholds, int]] = []

    def __await__(self) -> Generator[Any, None, dict[Any, Exception | None]]:
        return wait(self)

    def try_complete(self) -> bool:
        for key, (thresholds, offset) in list(self._needs.items()):
            error = error_at(thresholds, offset)
            if error is not None or thresholds._value >= offset:
                self._answers[key] = error
                del self._needs[key]
        return not self._needs and self.force_complete()

    def on_complete(self) -> dict[Hashable, Exception | None]:
        for key, (_, offset) in self._needs.items():
            self._answers[key] = DeadlineError(f"{described(key)} was not acked up to {offset} after {self.timeout} s")
        return self._answers

    def on_end(self, outcome: Outcome) -> None:
        for thresholds, offset in self._entered:
            leave(thresholds, offset)

    def watch_in(self, purgatory: Purgatory) -> DelayedProduce:
        """Watch it, or complete it if there is nothing to wait for. Returns: itself."""
        for key, (thresholds, _) in self._needs.items():
            if thresholds.purgatory is not purgatory:
                raise ValueError(
                    f"required must wait in {purgatory!r}, got {described(key)} in {thresholds.purgatory!r}"
                )
        if not self._needs:
            self.force_complete()
            return self
        park_awaited(purgatory, self, [key_of(thresholds, offset) for thresholds, offset in self._needs.values()])
        if is_pending(self):
            self._entered = list(self._needs.values())  # without waits that the tries of watch() have answered
            for thresholds, offset in self._entered:
                thresholds._queue.add(offset)
        return self


def checked_need(partition: object, need: object) -> tuple[Thresholds, int]:
    """Check the *need* of *partition*. Returns: its thresholds, and the offset to reach."""
    if not isinstance(need, tuple) or len(need) != 2:
        raise TypeError(
            f"required[{described(partition)}] must be a pair (Replicas, offset) or an error, got {described(need)}"
        )
    thresholds, offset = need
    if isinstance(thresholds, BaseReplicas):
        thresholds = thresholds._waits
    if not isinstance(thresholds, Thresholds):
        raise TypeError(f"required[{described(partition)}] must be Replicas or Thresholds, got {described(thresholds)}")
    return thresholds, as_int("offset", offset)
