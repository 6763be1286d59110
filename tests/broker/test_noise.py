"""Random bytes, and real requests that are cut and changed: the broker goes on, and nothing of them is left."""

from __future__ import annotations

import random
import re
import socket
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .asks import batch, create, fetch_values, join_values, produce, produce_values
from .served import Served, wait_until
from .wires import VERSIONS, Wire, encoded, framed

pytestmark = pytest.mark.broker

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
REAL: Final = [encoded(api, REQUESTS[api]) for api in VERSIONS]


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


async def check_nothing_left(served: Served, sockets: int, memory: int) -> None:
    await still_serves(served)
    for purgatory in ("fetch", "produce", "group", "admin", "read"):
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
