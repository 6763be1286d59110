"""python -m examples.broker.tests.ledger_member CLIENT ADDRESS TOPIC INSTANCE COMMITS: print what it reads and commits.

It reads up to ten records, says so, works on them for a moment, and commits. CLIENT: confluent or aiokafka. INSTANCE:
of a static member, or nothing. COMMITS: 0: it only says that it commits.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any, Final

import aiokafka
import aiokafka.errors
import confluent_kafka

Message = Any


class ConfluentMember:
    """A member, and the records that it has read and not committed."""

    def __init__(self, address: str, topic: str, instance: str, commits: bool) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
        settings |= {"session.timeout.ms": 1500, "heartbeat.interval.ms": 100, "reconnect.backoff.max.ms": 200}
        settings |= {"enable.auto.commit": False, "log_level": 0}
        self._consumer = confluent_kafka.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
        self._commits = commits
        self._read: list[Message] = []
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._commit, on_lost=self._lost)

    def run(self) -> None:
        while True:
            self._step()

    def _step(self) -> None:
        """Read some records and commit them."""
        end = time.monotonic() + 0.05
        while len(self._read) < 10 and (left := end - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                self._read.append(message)
                say("read", message.partition(), message.offset(), message.value())
        time.sleep(0.02)
        self._commit()

    def _assigned(self, *_: object) -> None:
        print(time.monotonic_ns(), "assigned", flush=True)

    def _lost(self, *_: object) -> None:
        self._read.clear()

    def _commit(self, *_: object) -> None:
        read, self._read = self._read, []
        ends = {message.partition(): message for message in read}
        for partition, last in ends.items():
            try:
                if self._commits:
                    (done,) = self._consumer.commit(message=last, asynchronous=False)
                    if done.error is not None:
                        continue
            except confluent_kafka.KafkaException:
                continue  # the group has begun anew, or the broker: it gets them again
            for message in read:
                if message.partition() == partition:
                    say("committed", message.partition(), message.offset(), message.value())


class AiokafkaMember(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """The same of aiokafka. A rebalance commits in a task of its own, so a record is committed by one task only."""

    def __init__(self, address: str, topic: str, instance: str, commits: bool) -> None:
        self._settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": topic, "enable_auto_commit": False}
        self._settings |= {"session_timeout_ms": 1500, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
        self._settings |= {"metadata_max_age_ms": 1000, "group_instance_id": instance or None}
        self._topic = topic
        self._commits = commits
        self._read: list[Message] = []

    def run(self) -> None:
        logging.disable()
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(**self._settings)
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        while True:
            for messages in (await self._consumer.getmany(timeout_ms=50, max_records=10)).values():
                for message in messages:
                    self._read.append(message)
                    say("read", message.partition, message.offset, message.value)
            await asyncio.sleep(0.02)
            await self._commit()

    async def on_partitions_assigned(self, _: object) -> None:
        print(time.monotonic_ns(), "assigned", flush=True)

    async def on_partitions_revoked(self, _: object) -> None:
        await self._commit()

    async def _commit(self) -> None:
        read, self._read = self._read, []
        ends = {message.partition: message.offset + 1 for message in read}
        for partition, end in ends.items():
            try:
                if self._commits:
                    await self._consumer.commit({aiokafka.TopicPartition(self._topic, partition): end})
            except aiokafka.errors.KafkaError:
                continue  # the group has begun anew, or the broker: it gets them again
            for message in read:
                if message.partition == partition:
                    say("committed", message.partition, message.offset, message.value)


def say(what: str, partition: int | None, offset: int | None, value: bytes | None) -> None:
    print(time.monotonic_ns(), what, partition, offset, (value or b"").decode(), flush=True)


MEMBERS: Final[dict[str, type[ConfluentMember | AiokafkaMember]]] = {
    "confluent": ConfluentMember,
    "aiokafka": AiokafkaMember,
}


if __name__ == "__main__":
    client, address, topic, instance, commits = sys.argv[1:]
    MEMBERS[client](address, topic, instance, bool(int(commits))).run()
