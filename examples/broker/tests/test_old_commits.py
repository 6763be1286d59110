"""OffsetCommit version 1, which older clients send without asking for the supported versions."""

from __future__ import annotations

import warnings

from .asks import batch, create, produce
from .served import Served
from .wires import KEYS, Wire, framed

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # how it reads its schemas is deprecated
    import kafka

GROUP = "old"


def text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


def commit(*topics: tuple[str, dict[int, int]], count: int | None = None) -> bytes:
    """A request. Args: topics: each with an offset for each partition. count: of topics, if another is to be sent."""
    head = KEYS["offset_commit"].to_bytes(2) + (1).to_bytes(2) + (7).to_bytes(4) + text("sarama")
    body = text(GROUP) + b"\xff" * 4 + text("") + (len(topics) if count is None else count).to_bytes(4)
    for name, offsets in topics:
        body += text(name) + len(offsets).to_bytes(4)
        for partition, offset in offsets.items():
            body += partition.to_bytes(4) + offset.to_bytes(8) + b"\xff" * 8 + text("note")
    return framed(head + body)


async def committed(wire: Wire) -> dict[tuple[str, int], tuple[int, str]]:
    answer = await wire.call("offset_fetch", group_id=GROUP, topics=None)
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata)
        for topic in answer.topics
        for part in topic.partitions
    }


async def test_commit_of_version_1_is_stored_and_answered(wire: Wire) -> None:
    await create(wire, "t", partitions=2)
    await create(wire, "u")
    wire.writer.write(commit(("t", {0: 5, 1: 6}), ("u", {0: 7}), ("nothing", {0: 8})))
    size = int.from_bytes(await wire.reader.readexactly(4))
    answer = await wire.reader.readexactly(size)
    none, unknown = bytes(2), (3).to_bytes(2)
    parts = {"t": [none, none], "u": [none], "nothing": [unknown]}
    expected = (7).to_bytes(4) + len(parts).to_bytes(4)
    for name, codes in parts.items():
        expected += text(name) + len(codes).to_bytes(4)
        expected += b"".join(number.to_bytes(4) + code for number, code in enumerate(codes))
    assert answer == expected
    stored = {("t", 0): (5, "note"), ("t", 1): (6, "note"), ("u", 0): (7, "note")}
    assert await committed(wire) == stored  # on the same connection


async def test_commit_of_version_1_that_is_cut_ends_its_connection(wire: Wire) -> None:
    wire.writer.write(commit(count=(1 << 31) - 1))
    assert await wire.rest() == b""


async def test_commit_of_kafka_python_in_version_1_is_read_back(served: Served) -> None:
    async with await Wire.open(served.port) as wire:
        await create(wire, "old")
        await produce(wire, "old", batch(b"x"))
    settings = {"bootstrap_servers": served.address, "group_id": GROUP, "enable_auto_commit": False}
    consumer = kafka.KafkaConsumer(**settings, api_version=(0, 8, 2))
    partition = kafka.TopicPartition("old", 0)
    consumer.assign([partition])
    consumer.commit({partition: kafka.OffsetAndMetadata(1, "note", -1)})
    assert consumer.committed(partition) == 1
    consumer.close()
