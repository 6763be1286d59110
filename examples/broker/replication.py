"""Partitions: a leader's log, two followers that fetch from it, and who waits for what.

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
from aiopurgatory.operations import DelayedFetch, Heartbeats, Replicas, SourceError

from .errors import KafkaError
from .log import Batch, Log

LEADER: Final = 0
FOLLOWERS: Final = (1, 2)
# A follower that has nothing to fetch asks again after so many seconds, as Kafka's do after half a second.
_FOLLOWER_WAIT: Final = 30.0
_FOLLOWER_BYTES: Final = 1 << 20

What = Literal["end", "committed"]


@dataclass
class Settings:
    """How partitions are kept. Times are in seconds."""

    #: For each partition: older records go when there are more.
    max_bytes: int = 16 << 20
    #: With fewer replicas in sync, nothing is appended with acks=all.
    min_in_sync: int = 2
    #: A follower that has not caught up for so long is not in sync any more.
    max_lag: float = 10.0
    #: Before each fetch of a follower: the network, say.
    lag: float = 0.0


class Read(NamedTuple):
    """What one partition answers to a fetch."""

    records: bytes
    high_watermark: int
    start: int


class Partition:
    """One partition, all of whose replicas are in this process. Followers keep no copy: they count what they fetch."""

    def __init__(self, fetches: Purgatory, acks: Purgatory, topic: str, number: int, settings: Settings) -> None:
        self.topic = topic
        self.number = number
        self.log = Log(settings.max_bytes)
        self.is_gone = False
        self.replicas = Replicas(
            acks, (topic, number), [LEADER, *FOLLOWERS], min_in_sync=min(settings.min_in_sync, 1 + len(FOLLOWERS))
        )
        self.in_sync = Heartbeats[int](
            acks, ("in sync", topic, number), timeout=settings.max_lag, on_missed=self._drop, excused=self._is_up
        )
        self._ends: dict[int, int] = {}  # where the log ended when each follower fetched last
        self._fetches = fetches
        self.followers = [Follower(self, name, settings.lag) for name in FOLLOWERS]

    def append(self, data: bytes | None, *, is_for_all: bool) -> tuple[int, int]:
        """Append one batch. Returns: the offset of its first record, and the one that replicas reach by having all.

        Raises: KafkaError: it is not appended. With *is_for_all*, also while too few replicas are in sync.
        """
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
        """*replica* has every record before *offset*. The high watermark may move: consumers wait for that."""
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
        """None is dropped for lagging behind, until it fetches again."""
        for follower in self.followers:
            self.in_sync.stop(follower.name)

    def remove(self) -> None:
        """The topic is deleted: whoever waits is told."""
        self.is_gone = True
        self.excuse_followers()
        for follower in self.followers:
            follower.stop()
        self.replicas.fail(KafkaError(ErrorCode.unknown_topic_or_partition))
        self.tell("end")
        self.tell("committed")

    def key(self, what: What) -> Hashable:
        """The watch key of who waits for more: followers at the log's end, consumers at what is committed."""
        return what, self.topic, self.number

    def tell(self, what: What) -> None:
        """There is more, or an error."""
        self._fetches.check_and_complete(self.key(what))

    async def read(self, what: What, offset: int, max_bytes: int, timeout: float) -> Read | SourceError:
        """Wait until there is something to read from *offset* on."""
        key = self.key(what)
        fetch = DelayedFetch({key: (View(self, what, max_bytes), offset)}, timeout=timeout)
        return (await self._fetches.watch(fetch, [key]))[key]

    def _drop(self, follower: int) -> None:
        before = self.replicas.high_watermark
        self.replicas.drop(follower)
        self._tell_consumers(before)

    def _is_up(self, follower: int) -> bool:
        """A follower that waits at the end has nothing to fetch, and lags behind nobody."""
        return self.replicas.in_sync.get(follower) == self.log.end

    def _tell_consumers(self, before: int) -> None:
        if self.replicas.high_watermark > before:
            self.tell("committed")


class View:
    """A partition as one fetch reads it: consumers up to the high watermark, followers up to the end."""

    def __init__(self, partition: Partition, what: What, max_bytes: int) -> None:
        self._partition = partition
        self._what = what
        self._max_bytes = max_bytes

    def readable(self, offset: int, /) -> int:
        """Raises: KafkaError: the topic is gone, or *offset* is not in the log."""
        return min(self._partition.log.size(offset, self._until()), self._max_bytes)

    def read(self, offset: int, max_bytes: int, /) -> Read:
        """Raises: KafkaError: as readable()."""
        log = self._partition.log
        records = log.read(offset, self._until(), max_bytes)
        return Read(records, self._partition.replicas.high_watermark, log.start)

    def _until(self) -> int:
        if self._partition.is_gone:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self._partition.log.end if self._what == "end" else self._partition.replicas.high_watermark


class Follower:
    """A replica: each of its fetches tells the leader how far it has come."""

    def __init__(self, partition: Partition, name: int, lag: float) -> None:
        self.name = name
        #: Seconds before each fetch; may be set at any time.
        self.lag = lag
        self._partition = partition
        self._stalled = False
        self._task = asyncio.get_running_loop().create_task(self._follow(partition._fetches))

    def stall(self, stalled: bool) -> None:
        """Fetch nothing from now on, or go on."""
        self._stalled = stalled
        self._partition._fetches.check_and_complete(self)

    def stop(self) -> None:
        self._task.cancel()

    async def _follow(self, fetches: Purgatory) -> None:
        partition = self._partition
        offset = partition.log.end
        while not partition.is_gone:
            if self._stalled:
                await fetches.wait_for(lambda: not self._stalled, [self], None)
            partition.note(self.name, offset)
            found = await partition.read("end", offset, _FOLLOWER_BYTES, _FOLLOWER_WAIT)
            # What it wanted may be gone: then it begins anew with what there is.
            offset = partition.log.start if isinstance(found, SourceError) else _end_of(found.records, offset)
            if self.lag:
                await asyncio.sleep(self.lag)


def _end_of(records: bytes, offset: int) -> int:
    """Where batches end that begin at *offset*."""
    place = 0
    while place < len(records):
        offset = int.from_bytes(records[place : place + 8]) + int.from_bytes(records[place + 57 : place + 61])
        place += 12 + int.from_bytes(records[place + 8 : place + 12])
    return offset
