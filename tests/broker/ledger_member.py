"""python -m tests.broker.ledger_member ADDRESS TOPIC INSTANCE COMMITS: says which records it has read and committed.

It reads up to ten records, says so, works on them for a moment, and commits. INSTANCE: of a static member, or nothing.
COMMITS: 0: it only says that it commits.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import confluent_kafka

Message = Any


class Member:
    """A member, and the records that it has read and not committed."""

    def __init__(self, address: str, topic: str, instance: str, commits: bool) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
        settings |= {"session.timeout.ms": 1500, "heartbeat.interval.ms": 100, "reconnect.backoff.max.ms": 200}
        settings |= {"enable.auto.commit": False, "log_level": 0}
        self._consumer = confluent_kafka.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
        self._commits = commits
        self._read: list[Message] = []
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._commit, on_lost=self._lost)

    def read(self) -> None:
        """Read some records and commit them."""
        end = time.monotonic() + 0.05
        while len(self._read) < 10 and (left := end - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                self._read.append(message)
                say("read", message)
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
                    say("committed", message)


def say(what: str, message: Message) -> None:
    print(time.monotonic_ns(), what, message.partition(), message.offset(), message.value().decode(), flush=True)


if __name__ == "__main__":
    address, topic, instance, commits = sys.argv[1:]
    member = Member(address, topic, instance, bool(int(commits)))
    while True:
        member.read()
