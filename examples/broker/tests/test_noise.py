"""Random bytes, and real requests that are cut and changed: the broker goes on, and nothing of them is left."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import confluent_kafka
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..wire import VERSIONS
from .asks import batch, create, fetch_values, join_values, produce, produce_values
from .served import Served, wait_until
from .wires import Wire, encoded, framed

pytestmark = pytest.mark.slow

ATTACKS: Final = 1_000
#: Bytes by which the memory may grow.
GROWTH: Final = 64 << 20
MEMBER: Final = {"group_id": "noise", "generation_id": 1, "member_id": "somebody"}
PARTITION: Final = {"partition_index": 0, "timestamp": -1, "committed_offset": 3, "committed_metadata": "note"}
TOPICS: Final = {"topics": [{"name": "noise", "partitions": [PARTITION]}]}
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "produce": produce_values("noise", batch(b"one", b"two"), timeout=0.2),
    "fetch": fetch_values("noise", 0, wait=0.2),
    "list_offsets": TOPICS,
    "metadata": {"topics": [{"name": "noise"}]},
    "join_group": join_values("noise", session=0.2),
    "sync_group": MEMBER | {"assignments": [{"member_id": "somebody", "assignment": b"plan"}]},
    "heartbeat": MEMBER,
    "leave_group": {"group_id": "noise", "members": [{"member_id": "somebody"}]},
    "offset_commit": MEMBER | TOPICS,
    "offset_fetch": {"group_id": "noise", "topics": [{"name": "noise", "partition_indexes": [0, 1]}]},
    "find_coordinator": {"key": "noise"},
    "create_topics": {"topics": [{"name": "more", "num_partitions": 1, "replication_factor": 1}]},
    "delete_topics": {"topic_names": ["more"], "timeout": timedelta(seconds=1)},
    "init_producer_id": {},
    "create_partitions": {"topics": [{"name": "more", "count": 3}], "timeout": timedelta(seconds=1)},
    "elect_leaders": {"topic_partitions": [{"topic": "noise", "partitions": [0]}]},
    "delete_records": {"topics": [{"name": "noise", "partitions": [{"partition_index": 0, "offset": 1}]}]},
    "describe_configs": {"resources": [{"resource_type": 2, "resource_name": "noise", "configuration_keys": None}]},
    "list_groups": {"states_filter": ["Stable"]},
    "describe_groups": {"groups": ["noise"]},
    "delete_groups": {"groups_names": ["noise"]},
    "api_versions": {"client_software_name": "noise", "client_software_version": "1"},
}
#: Lengths and numbers that no client sends: the lowest and the highest of 32 and 64 bits, and compact ones.
EXTREMES: Final = [
    *(sign + filler * size for sign, filler in ((b"\x80", b"\0"), (b"\x7f", b"\xff")) for size in (1, 3, 7)),
    *(b"\xff" * size for size in (2, 4, 8)),
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x10",
]
REAL: Final = [encoded(api, REQUESTS[api]) for api in VERSIONS]
ALL_VERSIONS: Final = [
    encoded(api, REQUESTS[api], version=version)
    for api, (oldest, newest) in VERSIONS.items()
    for version in range(oldest, newest + 1)
    if (api, version) != ("offset_commit", 1)
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real request with a few bytes changed, put in or taken out; its length is right, or not."""
    data = bytearray(draw(st.sampled_from(REAL)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["set", "insert", "remove", "cut"]))
        taken = {"set": 1, "insert": 0, "remove": draw(st.integers(1, 8)), "cut": len(data)}[change]
        data[place : place + taken] = draw(st.binary(max_size=4)) if change in ("set", "insert") else b""
    frame = framed(bytes(data))
    return frame if draw(st.integers(0, 3)) else frame[: draw(st.integers(0, len(frame)))]


def attack(port: int, data: bytes) -> None:
    """Send *data*, and read until the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client, suppress(ConnectionError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass


async def still_serves(served: Served) -> None:
    async with await Wire.open(served.port) as wire:
        for topic in [each.name for each in (await wire.call("metadata", topics=None)).topics]:
            await wire.call("delete_topics", topic_names=[topic])
        await create(wire, "after")
        assert (await produce(wire, "after", batch(b"x"))).base_offset == 0
        await wire.call("delete_topics", topic_names=["after"])


def waits_nothing(served: Served, purgatory: str) -> bool:
    return served.pending(purgatory) == 0


async def check_nothing_left(
    served: Served,
    sockets: int,
    memory: int,
    purgatories: Sequence[str] = ("fetch", "produce", "group", "admin", "read"),
) -> None:
    await still_serves(served)
    for purgatory in purgatories:
        wait_until(partial(waits_nothing, served, purgatory), f"nothing waits in {purgatory}")
    wait_until(lambda: served.sockets() <= sockets, "all connections are closed")
    assert served.memory() < memory + GROWTH
    code, err = served.stop()
    assert code == 0
    strange = [
        line for line in err.splitlines() if not re.search(r"broker WARNING .*; the connection is closed$", line)
    ]
    assert strange == []


async def test_noise_of_random_bytes_leaves_nothing(own_served: Served) -> None:
    await still_serves(own_served)
    sockets, memory, bytes_of = own_served.sockets(), own_served.memory(), random.Random(20_061)
    for number in range(ATTACKS):
        data = bytes_of.randbytes(bytes_of.randrange(200))
        attack(own_served.port, framed(data) if number % 2 else data)
    await check_nothing_left(own_served, sockets, memory)


async def test_noise_of_changed_requests_leaves_nothing(own_served: Served) -> None:
    await still_serves(own_served)
    for data in REAL:
        attack(own_served.port, framed(data))
    sockets, memory = own_served.sockets(), own_served.memory()

    @settings(
        max_examples=ATTACKS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated())
    def each(data: bytes) -> None:
        attack(own_served.port, data)

    each()
    await check_nothing_left(own_served, sockets, memory)


# a client at work meanwhile


class Attacker:
    """Sends requests with extreme values, several on one connection with the same number, until it is stopped."""

    def __init__(self, port: int, seed: int) -> None:
        self.sent = 0
        self._port = port
        self._chosen = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._attack, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Returns: how many it has sent."""
        self._stopped.set()
        self._thread.join()
        return self.sent

    def _attack(self) -> None:
        while not self._stopped.is_set():
            with socket.create_connection(("127.0.0.1", self._port), timeout=0.1) as client, suppress(OSError):
                for _ in range(self._chosen.randint(1, 5)):
                    client.sendall(framed(self._request()))
                    self.sent += 1
                while client.recv(1 << 16):
                    pass

    def _request(self) -> bytes:
        data = bytearray(self._chosen.choice(ALL_VERSIONS))
        for _ in range(self._chosen.randint(1, 3)):
            extreme, place = self._chosen.choice(EXTREMES), self._chosen.randint(8, len(data))
            data[place : place + len(extreme) * self._chosen.randint(0, 1)] = extreme
        return bytes(data)


async def test_noise_of_extreme_values_leaves_a_client_alone(own_served: Served) -> None:
    await still_serves(own_served)
    # A consumer reports a topic that does not exist yet as an error.
    async with await Wire.open(own_served.port) as wire:
        await create(wire, "normal")
    client = {"bootstrap.servers": own_served.address, "log_level": 0}
    producer = confluent_kafka.Producer(client | {"enable.idempotence": True})
    consumer = confluent_kafka.Consumer(client | {"group.id": "normal", "auto.offset.reset": "earliest"})
    sockets, memory = own_served.sockets(), own_served.memory()
    attackers = [Attacker(own_served.port, seed) for seed in range(4)]
    consumer.subscribe(["normal"])
    failures: list[object] = []
    slowest, written, read = 0.0, 0, list[int]()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        begin = time.monotonic()
        producer.produce("normal", b"%d" % written, partition=0, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(10) == 0
        slowest, written = max(slowest, time.monotonic() - begin), written + 1
        read += numbers_in(consumer.consume(100, 0.01))
    assert min([attacker.stop() for attacker in attackers]) > 100
    while len(read) < written:
        read += (more := numbers_in(consumer.consume(100, 10.0)))
        assert more
    consumer.close()
    del producer
    assert read == list(range(written))
    assert set(failures) == {None}
    assert slowest < 5.0
    # A member's session may take up to half an hour.
    await check_nothing_left(own_served, sockets, memory, ("fetch", "produce", "admin", "read"))


def numbers_in(messages: list[confluent_kafka.Message]) -> list[int]:
    assert [message.error() for message in messages] == [None] * len(messages)
    return [int(message.value() or b"") for message in messages]
