"""A group of members that come, go and are killed reads every record once, in order."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

import confluent_kafka
import pytest

from .members import AiokafkaMember, ConfluentMember, KafkaPythonMember, Ledger, Member
from .served import PATIENCE, Served, wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 4
#: How often a member joins or leaves, and how many seconds pass between.
CHANGES, PAUSE = 16, 0.6
KINDS: Final[list[type[Member]]] = [ConfluentMember, KafkaPythonMember, AiokafkaMember]


class Writer:
    """Writes numbers to each partition, 0 first, until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        self.written = 0
        self._topic = topic
        self._producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stopped.wait(0.01):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"%d" % self.written, partition=partition)
            self._producer.poll(0)
            self.written += 1
        assert self._producer.flush(PATIENCE) == 0


def churn(address: str, topic: str, ledger: Ledger) -> list[Member]:
    """Let 1 to 4 members join and leave. Returns: the members that stay."""
    chosen = random.Random(4)
    members: list[Member] = []
    for _ in range(CHANGES):
        if len(members) < 2 or (len(members) < 4 and chosen.random() < 0.5):
            members.append(chosen.choice(KINDS)(address, topic, ledger))
            members[-1].start()
        else:
            members.pop(chosen.randrange(len(members))).leave()
        time.sleep(PAUSE)
    return members


def test_group_that_changes_reads_each_record_once_in_order() -> None:
    ledger = Ledger()
    with Served("--partitions", str(PARTITIONS)) as served:
        with Writer(served.address, "churn") as writer:
            members = churn(served.address, "churn", ledger)
        total = PARTITIONS * writer.written
        wait_until(lambda: ledger.count >= total, "all records are read")
        for member in members:
            member.leave()
    assert total > 1_000
    for partition in range(PARTITIONS):
        assert ledger.offsets[partition] == list(range(writer.written))
        assert ledger.values[partition] == [b"%d" % number for number in range(writer.written)]
