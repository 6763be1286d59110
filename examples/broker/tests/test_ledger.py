"""An exact ledger of writers and a group, while members are killed and the broker restarts.

The broker's log and its groups are in memory, so a restart loses them by design. Therefore the ledger counts each life
of the broker. Within a life, every acked record is in the log and is read. A record is read again only if no member was
told of its commit. A record acked in one life does not come back in the next. Writers and members outlive the broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka
import confluent_kafka
import pytest

from .served import ENV, PATIENCE, ROOT, Served, wait_until
from .test_restart import free_port

pytestmark = pytest.mark.slow

PARTITIONS: Final = 4
#: Kills of members in a life of the broker, and the seconds before each. Members' sessions take 1.5 s.
KILLS, PAUSE = 4, 1.5
CLIENTS: Final = ["confluent", "aiokafka"]
#: Client and instance id of each member: two are static.
MEMBERS: Final = [("confluent", "one"), ("aiokafka", "two"), ("confluent", ""), ("aiokafka", "")]
#: How the broker's lives end.
ENDS: Final = [signal.SIGKILL, signal.SIGTERM]

#: A record: its partition, offset and value. Together they are never the same in two lives.
Record = tuple[int, int, str]
#: What a member says: time, event, record.
Said = tuple[int, str, Record | None]


class Writer(ABC):
    """Writes numbers to all partitions in turn, until it is stopped, and notes the acked records."""

    def __init__(self, address: str, topic: str, letter: str) -> None:
        self.acked: list[Record] = []
        self.failures: list[str] = []
        self.address, self.topic, self.letter = address, topic, letter
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()  # after a failure, there may be no broker to wait for

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @abstractmethod
    def write(self) -> None:
        """Write until `stopped`, then wait for the acks."""


class ConfluentWriter(Writer):
    """Of librdkafka."""

    def write(self) -> None:
        settings = {"bootstrap.servers": self.address, "enable.idempotence": True, "reconnect.backoff.max.ms": 200}
        producer = confluent_kafka.Producer(settings | {"log_level": 0})
        number = 0
        while not self.stopped.wait(0.01):
            value = f"{self.letter}{number}"
            producer.produce(self.topic, value.encode(), partition=number % PARTITIONS, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        if producer.flush(PATIENCE) != 0:
            self.failures.append("not all flushed")

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acked.append((message.partition(), message.offset(), message.value().decode()))
        else:
            self.failures.append(str(error))


class AiokafkaWriter(Writer):
    """Of aiokafka."""

    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        settings = {"bootstrap_servers": self.address, "enable_idempotence": True, "metadata_max_age_ms": 1000}
        async with aiokafka.AIOKafkaProducer(**settings) as producer, asyncio.TaskGroup() as sent:
            number = 0
            while not self.stopped.is_set():
                value, partition = f"{self.letter}{number}", number % PARTITIONS
                sent.create_task(
                    self._note(await producer.send(self.topic, value.encode(), partition=partition), value)
                )
                number += 1
                await asyncio.sleep(0.01)

    async def _note(self, ack: asyncio.Future[Any], value: str) -> None:
        try:
            found = await ack
        except Exception as error:
            self.failures.append(str(error))
        else:
            self.acked.append((found.partition, found.offset, value))


class Member:
    """A process that reads, and what it has said: time, event, record."""

    def __init__(self, address: str, client: str, instance: str, *, commits: bool = True) -> None:
        arguments = [client, address, "ledger", instance, str(int(commits))]
        command = [sys.executable, "-m", "examples.broker.tests.ledger_member", *arguments]
        self.client, self.instance = client, instance
        self.said: list[Said] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=ENV)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it was killed as it spoke
                at, event, *record = line.split()
                self.said.append((int(at), event, (int(record[0]), int(record[1]), record[2]) if record else None))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill(members: list[Member]) -> None:
    for member in members:
        member.kill()


@dataclass
class Ledger:
    """What all members have said."""

    members: list[Member] = field(default_factory=list)

    def read(self) -> set[Record]:
        return {
            record for member in self.members for _, event, record in list(member.said) if record and event == "read"
        }

    def read_after_commit(self) -> set[Record]:
        """The records that were read once more, after a member was told of their commit."""
        committed: set[Record] = set()
        again: set[Record] = set()
        for _, event, record in sorted(said for member in self.members for said in member.said if said[2] is not None):
            assert record is not None
            if event == "committed":
                committed.add(record)
            elif record in committed:
                again.add(record)
        return again

    def read_again(self) -> int:
        """How many reads were not the first of their record."""
        said = [each for member in self.members for each in member.said]
        return sum(event == "read" for _, event, _ in said) - len(self.read())


def jumps(histories: Iterable[list[Said]], lives: Iterable[list[Record]]) -> list[tuple[Record, Record]]:
    """Records of a partition that a member read one after the other, without being so in the log.

    A broker that restarts has an empty log, and a member may go on there without a rebalance. So it may go back to 0,
    but not from a record of the same life. A record that was written after the end of the audit is of no known life.

    Args: lives: the log of each life.
    """
    life_of = {record: number for number, log in enumerate(lives) for record in log}
    found: list[tuple[Record, Record]] = []
    for history in histories:
        last: dict[int, Record] = {}
        for _, event, record in history:
            if event == "assigned":
                last.clear()
            elif event == "read" and record is not None:
                one = last.get(record[0])
                begins_anew = one is not None and record[1] == 0 and life_of.get(one) != life_of.get(record)
                if one is not None and record[1] != one[1] + 1 and not begins_anew:
                    found.append((one, record))
                last[record[0]] = record
    return found


def test_return_to_the_start_of_the_same_life_is_a_jump() -> None:
    old, new = ([(0, offset, f"{life}{offset}") for offset in range(3)] for life in "cd")

    def found(*records: Record) -> list[tuple[Record, Record]]:
        return jumps([[(at, "read", record) for at, record in enumerate(records)]], [old, new])

    assert found(*old, *new) == found(*old[:1], *new, (0, 3, "d3")) == []
    assert found(*old, *old) == [(old[2], old[0])]
    assert found(*old, *new, *new) == [(new[2], new[0])]
    assert found(old[0], old[2]) == [(old[0], old[2])]
    assert found(old[1], new[2], new[0]) == [(new[2], new[0])]


def log_of(address: str, topic: str) -> list[Record]:
    """All records of a life of the broker, partition by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "log", "enable.auto.commit": False})
    log: list[Record] = []
    for number in range(PARTITIONS):
        start = confluent_kafka.TopicPartition(topic, number, 0)
        _, end = consumer.get_watermark_offsets(start, timeout=PATIENCE)
        consumer.assign([start])
        found: list[Any] = []
        while len(found) < end:
            found += consumer.consume(end - len(found), PATIENCE)
        log += [(number, message.offset(), message.value().decode()) for message in found]
    consumer.close()
    return log


def numbers(log: list[Record], partition: int, letter: str) -> list[int]:
    return [int(value[1:]) for number, _, value in log if number == partition and value[0] == letter]


def churn(address: str, members: list[Member], ledger: Ledger, chosen: random.Random) -> None:
    """Kill members, and start each anew."""
    for _ in range(KILLS):
        time.sleep(PAUSE)
        victim = members.pop(chosen.randrange(len(members)))
        victim.kill()
        members.append(Member(address, victim.client, victim.instance))
        ledger.members.append(members[-1])


def audit(address: str, ledger: Ledger, acked: set[Record]) -> list[Record]:
    """Wait until every *acked* record of this life is read. Returns: the log."""
    log = log_of(address, "ledger")
    assert acked <= set(log)
    for partition in range(PARTITIONS):
        for letter in {value[0] for _, _, value in log}:
            found = numbers(log, partition, letter)
            assert found == sorted(set(found))  # in order, none twice
    wait_until(lambda: acked <= ledger.read(), "every acked record is read")
    return log


def test_ledger_of_three_lives_has_no_loss_and_no_unreasoned_repeat(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka")  # without a broker, it complains ten times a second
    port, chosen, ledger = free_port(), random.Random(29), Ledger()
    address = f"127.0.0.1:{port}"
    writers: list[Writer] = []
    members: list[Member] = []
    lives: list[list[Record]] = []
    acked_before: set[Record] = set()

    def acked() -> set[Record]:
        return {record for writer in writers for record in list(writer.acked)} - acked_before

    with ExitStack() as stack:
        stack.callback(kill, members)
        for life, end in enumerate([*ENDS, None]):
            with Served("--port", str(port), "--partitions", str(PARTITIONS)) as served:
                kinds = [AiokafkaWriter, ConfluentWriter] if life == 0 else [ConfluentWriter]
                for kind in kinds:
                    writers.append(stack.enter_context(kind(address, "ledger", "abcd"[len(writers)])))
                if life == 0:
                    members += [Member(address, *each) for each in MEMBERS]
                    ledger.members += members
                churn(address, members, ledger, chosen)
                if end is None:
                    for writer in writers:
                        writer.stop()
                assert len(acked()) > 300
                log = audit(address, ledger, acked())
                lives.append(log)
                assert not {value for _, _, value in log} & {value for _, _, value in acked_before}
                if end is not None:
                    served.stop(end)  # in the middle of the traffic
            time.sleep(1.0)  # the last acks of this life are noted
            acked_before |= acked()
    assert [failure for writer in writers for failure in writer.failures] == []
    assert ledger.read_after_commit() == set()
    assert jumps([member.said for member in ledger.members], lives) == []
    print(f"{len(acked_before)} records acked, {ledger.read_again()} read again")


@pytest.mark.parametrize("client", CLIENTS)
def test_ledger_without_commits_shows_repeats(client: str) -> None:
    with Served("--partitions", str(PARTITIONS)) as served:
        writer = ConfluentWriter(served.address, "ledger", "c")
        with writer:
            wait_until(lambda: len(writer.acked) >= 100, "100 records are acked")
            writer.stop()
        ledger = Ledger()
        for _ in range(2):
            ledger.members.append(Member(served.address, client, "one", commits=False))
            wait_until(lambda: set(writer.acked) <= {each[2] for each in ledger.members[-1].said}, "all are read")
            ledger.members[-1].kill()
        log = log_of(served.address, "ledger")
    assert ledger.read_after_commit()
    assert jumps([member.said for member in ledger.members], [log]) == []
