"""Searches by time find the record itself, within a batch and whatever its compression."""

from __future__ import annotations

import aiokafka
import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode

from .asks import create, produce
from .inside import Broker
from .served import PATIENCE, Served
from .wires import Wire

HIGHEST = -3
TIMES = [2_000, 1_000, 5_000, 5_000, 3_000]


def batch_of(*times: int, codec: int = 0) -> bytes:
    """A batch with a record for each of *times*."""
    producer = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, batch_size=1 << 20, **producer
    )
    for number, time in enumerate(times):
        builder.append(number, timestamp=time, key=None, value=b"x" * 100, headers=[])
    return bytes(builder.build())


async def found(wire: Wire, *timestamps: int) -> list[tuple[int, int]]:
    """Offset and timestamp for each."""
    parts = [{"partition_index": 0, "timestamp": timestamp} for timestamp in timestamps]
    answers = []
    for part in parts:
        answer = await wire.call("list_offsets", version=7, topics=[{"name": "t", "partitions": [part]}])
        (each,) = answer.topics[0].partitions
        assert each.error_code == ErrorCode.none
        answers.append((each.offset, each.timestamp))
    return answers


@pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
async def test_search_by_time_finds_the_record_in_its_batch(wire: Wire, codec: int) -> None:
    await create(wire, "t")
    for _ in range(2):
        assert (await produce(wire, "t", batch_of(*TIMES, codec=codec))).error_code == ErrorCode.none
    asked = [0, 2_000, 2_001, 5_000, 5_001, HIGHEST]
    expected = [(0, 2_000), (0, 2_000), (2, 5_000), (2, 5_000), (-1, -1), (2, 5_000)]
    assert await found(wire, *asked) == expected


async def test_search_for_the_highest_timestamp_sees_all_batches(wire: Wire) -> None:
    await create(wire, "t")
    assert await found(wire, HIGHEST) == [(-1, -1)]
    for times in ([1_000, 2_000], [4_000, 9_000, 8_000], [3_000]):
        await produce(wire, "t", batch_of(*times))
    assert await found(wire, HIGHEST) == [(3, 9_000)]


async def test_search_for_the_highest_timestamp_needs_its_version(wire: Wire) -> None:
    await create(wire, "t")
    parts = [{"partition_index": 0, "timestamp": HIGHEST}]
    answer = await wire.call("list_offsets", version=6, topics=[{"name": "t", "partitions": parts}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unsupported_version


async def test_search_in_a_batch_that_cannot_be_read_is_refused(wire: Wire) -> None:
    good = batch_of(*TIMES)
    for codec in range(1, 8):
        bad = good[:21] + codec.to_bytes(2) + good[23:]
        bad = bad[:17] + checksum(bad[21:]) + bad[21:]
        await create(wire, f"t{codec}")
        assert (await produce(wire, f"t{codec}", bad)).error_code == ErrorCode.none
        parts = [{"partition_index": 0, "timestamp": 0}]
        answer = await wire.call("list_offsets", topics=[{"name": f"t{codec}", "partitions": parts}])
        assert answer.topics[0].partitions[0].error_code == ErrorCode.corrupt_message


def checksum(data: bytes) -> bytes:
    return int(crc32c.crc32c(data)).to_bytes(4)


async def test_search_by_time_of_aiokafka_finds_the_record(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    address, partition = f"127.0.0.1:{broker.port}", aiokafka.TopicPartition("t", 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, linger_ms=50) as producer:
        sent = [await producer.send("t", b"x", partition=0, timestamp_ms=time) for time in (1_000, 2_000, 3_000)]
        for each in sent:
            await each
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        pair = (await consumer.offsets_for_times({partition: 1_500}))[partition]
        assert (pair.offset, pair.timestamp) == (1, 2_000)


async def test_highest_timestamp_is_told_to_librdkafka(served: Served) -> None:
    async with await Wire.open(served.port) as wire:
        await create(wire, "highest")
        await produce(wire, "highest", batch_of(*TIMES))
    admin = AdminClient({"bootstrap.servers": served.address})
    asked = {TopicPartition("highest", 0): OffsetSpec.max_timestamp()}  # type: ignore[no-untyped-call]
    (future,) = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED).values()
    pair = future.result(PATIENCE)
    assert (pair.offset, pair.timestamp) == (2, 5_000)
