"""Members of a consumer group that note which records they have read and committed."""

from __future__ import annotations

import asyncio
import threading
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
from aiokafka.coordinator.assignors import roundrobin

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # how it reads its schemas is deprecated
    import kafka
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError


class Ledger:
    """The commits: of each partition the offsets, in the order of the commits."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.values: dict[int, list[bytes]] = defaultdict(list)
        self._lock = threading.Lock()

    def note(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Args: records: partition, offset and value of each."""
        with self._lock:
            for partition, offset, value in records:
                self.offsets[partition].append(offset)
                self.values[partition].append(value)

    @property
    def count(self) -> int:
        with self._lock:
            return sum(map(len, self.offsets.values()))


class Member(ABC):
    """One that reads in a thread and commits its records. Its partitions are taken from it only as it polls."""

    def __init__(self, address: str, topic: str, ledger: Ledger) -> None:
        self.address = address
        self.topic = topic
        self.ledger = ledger
        self.left = threading.Event()
        self._thread = threading.Thread(target=self.read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self.left.set()
        self._thread.join()

    @abstractmethod
    def read(self) -> None:
        """Read and commit until `left` is set, then leave the group."""


class KafkaPythonMember(Member):
    """Of kafka-python."""

    def read(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.address,
            "group_id": self.topic,
            "auto_offset_reset": "earliest",
        }
        settings |= {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
        consumer = kafka.KafkaConsumer(self.topic, enable_auto_commit=False, heartbeat_interval_ms=100, **settings)
        while not self.left.is_set():
            for partition, records in consumer.poll(50).items():
                with suppress(KafkaError):  # the group has begun anew: another member reads them again
                    consumer.commit({partition: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)})
                    self.ledger.note((record.partition, record.offset, record.value) for record in records)
        consumer.close()


class ConfluentMember(Member):
    """Of librdkafka, which takes partitions away in poll() only if it is to tell of that."""

    def read(self) -> None:
        settings = {"bootstrap.servers": self.address, "group.id": self.topic, "auto.offset.reset": "earliest"}
        settings |= {"partition.assignment.strategy": "roundrobin", "heartbeat.interval.ms": "100"}
        consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": "false", "log_level": "0"})
        consumer.subscribe([self.topic], on_assign=_told, on_revoke=_told)
        while not self.left.is_set():
            record = consumer.poll(0.05)
            if record is not None and record.error() is None:
                self._commit(consumer, record)
        consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer, record: Any) -> None:
        with suppress(confluent_kafka.KafkaException):
            if all(part.error is None for part in consumer.commit(message=record, asynchronous=False)):
                self.ledger.note([(record.partition(), record.offset(), record.value())])


class AiokafkaMember(Member):
    """Of aiokafka, which takes partitions away whenever it likes, but tells of that first."""

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": self.address, "group_id": self.topic}
        settings |= {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 100}
        strategy = (roundrobin.RoundRobinPartitionAssignor,)
        consumer = aiokafka.AIOKafkaConsumer(partition_assignment_strategy=strategy, **settings)
        at_work = asyncio.Lock()
        consumer.subscribe([self.topic], listener=_Patient(at_work))
        await consumer.start()
        while not self.left.is_set():
            async with at_work:
                await self._read_some(consumer)
            await asyncio.sleep(0.02)
        await consumer.stop()

    async def _read_some(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        try:
            async with asyncio.timeout(0.2):  # while the group begins anew, getmany() waits for its end
                found = await consumer.getmany()
        except TimeoutError:
            return
        for partition, records in found.items():
            with suppress(aiokafka.errors.KafkaError):
                await consumer.commit({partition: records[-1].offset + 1})
                self.ledger.note((record.partition, record.offset, record.value) for record in records)


class _Patient(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Lets its consumer note its records before its partitions go."""

    def __init__(self, at_work: asyncio.Lock) -> None:
        self._at_work = at_work

    async def on_partitions_revoked(self, revoked: object) -> None:
        async with self._at_work:
            pass

    async def on_partitions_assigned(self, assigned: object) -> None:
        pass


def _told(consumer: object, partitions: object) -> None:
    pass
