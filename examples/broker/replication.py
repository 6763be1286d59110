"""Partitions: a leader's log, two followers that fetch from it, and the waits of clients.

append -> the log's end      -> ("end", topic, partition)        followers' fetches
       -> followers fetch on -> Replicas                         produce requests with acks=all
       -> high watermark     -> ("committed", topic, partition)  consumers' fetches
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kio.schema.errors import ErrorCode

from aiopurgatory import Purgatory
from aiopurgatory.operations import Heartbeats, Replicas, SourceError, fetch

from .errors import KafkaError
from .log import Batch, Log

LEADER: Final = 0
FOLLOWERS: Final = (1, 2)
# Seconds that a follower's fetch waits for records. Kafka's followers wait half a second.
_FOLLOWER_WAIT: Final = 30.0
_FOLLOWER_BYTES: Final = 1 << 20

What = Literal["end", "committed"]


@dataclass
class Settings:
    """The settings of partitions. Times are in seconds."""

    #: Bytes per partition. Older records are dropped above this.
    max_bytes: int = 16 << 20
    #: Bytes of a batch. Larger ones are refused.
    max_batch: int = 1_048_588
    #: With fewer in-sync replicas, produce requests with acks=all are refused.
    min_in_sync: int = 2
    #: A follower that has not caught up for this long is no longer in sync.
    max_lag: float = 10.0
    #: Delay before each fetch of a follower, such as the network's.
    lag: float = 0.0


class Read(NamedTuple):
    """The answer of one partition to a fetch."""

    records: bytes
    high_watermark: int
    start: int


class Partition:
    """One partition, with all replicas in this process. Followers keep no copy: they only count fetched records."""

    def __init__(self, fetches: Purgatory, acks: Purgatory, topic: str, number: int, settings: Settings) -> None:
        self.topic = topic
        self.number = number
        self.log = Log(settings.max_bytes)
        self._max_batch = settings.max_batch
        self.is_gone = False
        self.replicas = Replicas(
            acks, (topic, number), [LEADER, *FOLLOWERS], min_in_sync=min(settings.min_in_sync, 1 + len(FOLLOWERS))
        )
        self.in_sync = Heartbeats[int](
            acks, ("in sync", topic, number), timeout=settings.max_lag, on_missed=self._drop, excused=self._is_up
        )
        self._ends: dict[int, int] = {}  # the log's end at each follower's last fetch
        self._fetches = fetches
        self.followers = [Follower(self, name, settings.lag) for name in FOLLOWERS]

    def append(self, data: bytes | None, *, is_for_all: bool) -> tuple[int, int]:
        """Append one batch. Returns: the offset of its first record, and the offset after its last one.

        Args: is_for_all: require ``min_in_sync`` in-sync replicas.
        Raises: KafkaError: the batch is refused.
        """
        if data is not None and len(data) > self._max_batch:
            raise KafkaError(ErrorCode.message_too_large)
        batch = Batch.parse(data)
        base = self.log.known(batch)
        if base is None:
            if is_for_all and self.replicas.error_for(self.log.end + 1):
                raise KafkaError(ErrorCode.not_enough_replicas)
            base = self.log.append(batch)
            self.note(LEADER, self.log.end)
            self.tell("end")
        return base, base + batch.records

    def note(self, replica: int, offset: int) -> None:
        """Note that *replica* has every record up to *offset*. If the high watermark moves, answer consumers."""
        before = self.replicas.high_watermark
        if replica in self.replicas.in_sync:
            self.replicas.update(replica, offset)
        elif offset >= before:
            self.replicas.add(replica, offset)
        if replica != LEADER:
            if offset >= self._ends.get(replica, 0):
                self.in_sync.beat(replica)
            self._ends[replica] = self.log.end
        self._tell_consumers(before)

    def excuse_followers(self) -> None:
        """Stop dropping followers for lag until they fetch again."""
        for follower in self.followers:
            self.in_sync.stop(follower.name)

    def remove(self) -> None:
        """Fail every wait: the topic is deleted."""
        self.is_gone = True
        self.excuse_followers()
        for follower in self.followers:
            follower.stop()
        self.replicas.fail(KafkaError(ErrorCode.unknown_topic_or_partition))
        self.tell("end")
        self.tell("committed")

    def key(self, what: What) -> Hashable:
        """The watch key of fetches: followers wait for the log's end, consumers for committed records."""
        return what, self.topic, self.number

    def tell(self, what: What) -> None:
        """Check the waiting fetches: there is more to read, or an error."""
        self._fetches.check_and_complete(self.key(what))

    async def read(self, what: What, offset: int, max_bytes: int, timeout: float) -> Read | SourceError:
        """Wait until there is something to read at *offset*, for at most *timeout* seconds."""
        key = self.key(what)
        found = await fetch(self._fetches, {key: (View(self, what, max_bytes), offset)}, timeout=timeout)
        return found[key]

    def _drop(self, follower: int) -> None:
        before = self.replicas.high_watermark
        self.replicas.drop(follower)
        self._tell_consumers(before)

    def _is_up(self, follower: int) -> bool:
        """Whether a follower has fetched everything: waiting at the end is not lag."""
        return self.replicas.in_sync.get(follower) == self.log.end

    def _tell_consumers(self, before: int) -> None:
        if self.replicas.high_watermark > before:
            self.tell("committed")


class View:
    """A partition as one fetch sees it: for consumers up to the high watermark, for followers up to the end."""

    def __init__(self, partition: Partition, what: What, max_bytes: int) -> None:
        self._partition = partition
        self._what = what
        self._max_bytes = max_bytes

    def readable(self, offset: int, /) -> int:
        """Return the readable bytes. Raises: KafkaError: the topic is gone, or *offset* is not in the log."""
        return min(self._partition.log.size(offset, self._until()), self._max_bytes)

    def read(self, offset: int, max_bytes: int, /) -> Read:
        """Read the records. Raises: KafkaError: as for readable()."""
        log = self._partition.log
        records = log.read(offset, self._until(), max_bytes)
        return Read(records, self._partition.replicas.high_watermark, log.start)

    def _until(self) -> int:
        if self._partition.is_gone:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self._partition.log.end if self._what == "end" else self._partition.replicas.high_watermark


class Follower:
    """A replica: its fetches report its offset to the leader."""

    def __init__(self, partition: Partition, name: int, lag: float) -> None:
        self.name = name
        #: Seconds before each fetch; may be set at any time.
        self.lag = lag
        self._partition = partition
        self._stalled = False
        self._task = asyncio.get_running_loop().create_task(self._follow(partition._fetches))

    def stall(self, stalled: bool) -> None:
        """Stop fetching, or resume."""
        self._stalled = stalled
        self._partition._fetches.check_and_complete(self)

    def stop(self) -> None:
        self._task.cancel()

    async def _follow(self, fetches: Purgatory) -> None:
        partition = self._partition
        offset = partition.log.end
        while not partition.is_gone:
            if self._stalled:
                await fetches.wait_for(lambda: not self._stalled, [self], timeout=None)
            partition.note(self.name, offset)
            found = await partition.read("end", offset, _FOLLOWER_BYTES, _FOLLOWER_WAIT)
            # Its offset may have been dropped from the log: then it restarts at the log's start.
            offset = partition.log.start if isinstance(found, SourceError) else _end_of(found.records, offset)
            if self.lag:
                await asyncio.sleep(self.lag)


def _end_of(records: bytes, offset: int) -> int:
    """Return the offset after the batches in *records*, which begin at *offset*."""
    place = 0
    while place < len(records):
        offset = int.from_bytes(records[place : place + 8]) + int.from_bytes(records[place + 57 : place + 61])
        place += 12 + int.from_bytes(records[place + 8 : place + 12])
    return offset
