"""How far each replica of a partition is, and the high watermark that follows from it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, SupportsIndex

from mypy_extensions import mypyc_attr

from ..arguments import require_int
from ..errors import PurgatoryError
from ..purgatory import Purgatory
from .offsets import Offsets, error_at, has_failed, raise_value, refuse_other_thread, set_obstacle
from .watermark import as_int


class NotEnoughReplicasError(PurgatoryError):
    """Fewer replicas are in sync than ``min_in_sync``.

    From error_for(), before an append: nothing is appended. From a wait: what was appended is not safe, though it may
    survive.
    """


@mypyc_attr(allow_interpreted_subclasses=True)
class InSync:
    """What Replicas does without being a coroutine; see there."""

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
        self._waits: Final = Offsets(purgatory, key, start=start)
        require_int("min_in_sync", min_in_sync, 1)
        self._min_in_sync: Final = as_int("min_in_sync", min_in_sync)
        if isinstance(replicas, (str, bytes)):
            raise TypeError(f"replicas must be an iterable of names, got the single name {replicas!r}; pass [name]")
        if isinstance(replicas, (set, frozenset)):
            raise TypeError(f"replicas must have an order, the leader first, got the set {replicas!r}")
        names = list(replicas)
        if not names:
            raise ValueError("replicas must name at least one replica, got none")
        self._leader: Final = names[0]
        self._offsets: Final[dict[Hashable, int]] = dict.fromkeys(names, self._waits.value)
        recount(self)

    def __repr__(self) -> str:
        counts = f"high_watermark={self.high_watermark} in_sync={len(self._offsets)} waiting={self._waits.waiting}"
        return f"<{type(self).__name__} {self.key!r} {counts}>"

    @property
    def purgatory(self) -> Purgatory:
        return self._waits.purgatory

    @property
    def key(self) -> Hashable:
        return self._waits.key

    @property
    def high_watermark(self) -> int:
        """Every replica in sync has the records before this offset."""
        return self._waits.value

    @property
    def in_sync(self) -> Mapping[Any, int]:
        """The offset of each replica in sync; a copy."""
        return self._offsets.copy()

    def error_for(self, offset: SupportsIndex) -> Exception | None:
        """What a wait for *offset* would raise now, apart from TimeoutError; None if nothing.

        Ask before an append, with the offset that it would reach: what cannot be acked is better refused.

        Raises: TypeError: *offset* is no int.
        Source: Kafka Partition.appendRecordsToLeader.
        """
        return error_at(self._waits, as_int("offset", offset))

    def update(self, replica: Any, offset: SupportsIndex) -> int:
        """Note that *replica* has every record before *offset*, and complete the waits that this satisfies.

        Returns: how many ended; 0 from a hook during a check, which puts it off (I7).
        Raises: TypeError: *offset* is no int. ValueError: *replica* is not in sync, is a follower ahead of the
            leader, or the leader going back. RuntimeError: called from another thread, while something waits for it.
        """
        if replica not in self._offsets:
            raise ValueError(f"{replica!r} is not in sync; call add() once it has caught up")
        move(self, replica, as_int("offset", offset))
        return recount(self)

    def drop(self, replica: Any) -> int:
        """Do not wait for the follower *replica* any longer: it has fallen behind.

        Returns: how many waits ended, as update().
        Raises: ValueError: it is not in sync, or it is the leader.
        """
        if replica not in self._offsets:
            raise ValueError(f"cannot drop {replica!r}, which is not in sync; in sync are {list(self._offsets)!r}")
        if replica == self._leader:
            role = "the leader" if len(self._offsets) > 1 else "the last in-sync replica"
            raise ValueError(f"cannot drop {replica!r}, {role}; call fail() if the leader is gone")
        refuse_other_thread(self._waits)
        del self._offsets[replica]
        return recount(self)

    def add(self, replica: Any, offset: SupportsIndex) -> int:
        """Wait for *replica*, too: it has caught up to *offset*.

        Returns: how many waits ended, as update().
        Raises: TypeError: *offset* is no int. ValueError: it is below the high watermark, or above the leader's.
        """
        caught_up = as_int("offset", offset)
        if caught_up < self.high_watermark:
            raise ValueError(
                f"{replica!r} is not in sync at offset {caught_up}; it must reach {self.high_watermark}, "
                "the high watermark"
            )
        move(self, replica, caught_up)
        return recount(self)

    def fail(self, exc: Exception) -> int:
        """End every wait, now and later, with *exc*: this leader is none any more.

        Returns: how many ended, as update().
        Raises: TypeError: *exc* is no instance of Exception, or a StopIteration. RuntimeError: called from another
            thread, while something waits.
        """
        return self._waits.fail(exc)


def waits_of(replicas: InSync) -> Offsets:
    return replicas._waits


def move(replicas: InSync, replica: Any, offset: int) -> None:
    leader = replicas._leader
    end = replicas._offsets[leader]
    if replica == leader:
        if offset < end:
            raise ValueError(f"the leader {leader!r} cannot go back from offset {end} to {offset}")
    elif offset > end:
        raise ValueError(
            f"{replica!r} cannot be at offset {offset}, ahead of the leader {leader!r} at {end}; "
            "update the leader first"
        )
    refuse_other_thread(replicas._waits)
    replicas._offsets[replica] = offset


def recount(replicas: InSync) -> int:
    """The offsets have changed: advance the high watermark, or end the waits. Returns: how many ended."""
    waits, least = replicas._waits, replicas._min_in_sync
    if has_failed(waits):
        return 0
    count = len(replicas._offsets)
    if count >= least:
        set_obstacle(waits, None)
        return raise_value(waits, min(replicas._offsets.values()))
    found = f"{count} of the replicas of {waits.key!r} are in sync, and min_in_sync is {least}"
    return set_obstacle(waits, NotEnoughReplicasError(found))
