"""Searches by time find the record itself, within a batch and whatever its compression."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import aiokafka
import cramjam
import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode

from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import create, offset_at, produce
from .conftest import Start
from .served import PATIENCE, Served
from .wires import Wire

HIGHEST = -3
TIMES = [2_000, 1_000, 5_000, 5_000, 3_000]


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MIB = 1 << 20


def batch_of(*times: int, codec: int = 0, size: int = 100) -> bytes:
    """A batch with a record of *size* bytes for each of *times*."""
    producer = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, batch_size=1 << 30, **producer
    )
    for number, time in enumerate(times):
        builder.append(number, timestamp=time, key=None, value=b"x" * size, headers=[])
    return bytes(builder.build())


def lying(good: bytes, *, attributes: int | None = None, max_timestamp: int | None = None) -> bytes:
    """The batch with another header, and the right checksum for it."""
    bad = bytearray(good)
    if attributes is not None:
        bad[21:23] = attributes.to_bytes(2)
    if max_timestamp is not None:
        bad[35:43] = max_timestamp.to_bytes(8)
    bad[17:21] = int(crc32c.crc32c(bytes(bad[21:]))).to_bytes(4)
    return bytes(bad)


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


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
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
        await create(wire, f"t{codec}")
        assert (await produce(wire, f"t{codec}", lying(good, attributes=codec))).error_code == ErrorCode.none
        assert (await offset_at(wire, f"t{codec}", 0)).error_code == ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
async def test_search_in_a_batch_that_inflates_too_far_is_refused(start: Start, codec: int) -> None:
    broker = await start(BrokerSettings(partition=Settings(max_batch=4 * MIB)))  # snappy inflates 20 times at most
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        for code, size in ((ErrorCode.none, 15 * MIB), (ErrorCode.corrupt_message, 16 * MIB)):
            await wire.call("delete_records", topics=[{"name": "t", "partitions": [{"offset": -1}]}])
            assert (await produce(wire, "t", batch_of(1_000, codec=codec, size=size))).error_code == ErrorCode.none
            assert (await offset_at(wire, "t", 0)).error_code == code


async def test_search_in_snappy_blocks_that_inflate_too_far_is_refused(wire: Wire) -> None:
    await create(wire, "t")
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    blocks = b"\x82SNAPPY\x00" + bytes(8) + 17 * (len(block).to_bytes(4) + block)
    good = batch_of(1_000)
    bad = good[:8] + (61 - 12 + len(blocks)).to_bytes(4) + good[12:61] + blocks
    assert (await produce(wire, "t", lying(bad, attributes=2))).error_code == ErrorCode.none
    assert (await offset_at(wire, "t", 0)).error_code == ErrorCode.corrupt_message


async def test_batch_with_too_many_records_is_refused(wire: Wire) -> None:
    await create(wire, "t")
    good = batch_of(1_000)
    for code, count in ((ErrorCode.none, 1 << 18), (ErrorCode.invalid_record, (1 << 18) + 1)):
        many = good[:23] + (count - 1).to_bytes(4) + good[27:57] + count.to_bytes(4) + good[61:]
        assert (await produce(wire, "t", lying(many))).error_code == code


async def test_search_in_a_batch_with_numbers_too_large_is_refused(wire: Wire) -> None:
    await create(wire, "t")
    good = batch_of(1_000, 1_000 + (1 << 62))
    offset = good.index(b"\x02", 61 + 100)  # of the second record, within the batch
    for bad in (good[:27] + ((1 << 63) - 1).to_bytes(8) + good[35:], good[:offset] + b"\x04" + good[offset + 1 :]):
        assert (await produce(wire, "t", lying(bad))).error_code == ErrorCode.none
        assert (await offset_at(wire, "t", HIGHEST, version=7)).error_code == ErrorCode.corrupt_message
        await wire.call("delete_topics", topic_names=["t"])
        await create(wire, "t")


async def test_search_among_lying_batches_ends_with_an_error(wire: Wire) -> None:
    await create(wire, "t")
    for _ in range(2):
        await produce(wire, "t", lying(batch_of(1_000), max_timestamp=9_000))
    await produce(wire, "t", batch_of(5_000))
    assert (await offset_at(wire, "t", 2_000)).error_code == ErrorCode.corrupt_message
    assert (await offset_at(wire, "t", 1_000)).offset == 0


async def test_search_goes_on_after_a_batch_whose_record_is_deleted(wire: Wire) -> None:
    await create(wire, "t")
    for times in ([9_000, 1_000], [5_000]):
        await produce(wire, "t", batch_of(*times))
    deleted = {"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}
    await wire.call("delete_records", topics=[deleted], timeout=timedelta(seconds=10))
    assert await found(wire, 2_000) == [(2, 5_000)]


async def test_search_in_many_partitions_lets_others_go_on(broker: Broker, wire: Wire) -> None:
    await create(wire, "t", partitions=20)
    parts = [{"index": number, "records": batch_of(*range(2_000), size=0)} for number in range(20)]
    await wire.call(
        "produce", acks=-1, timeout=timedelta(seconds=10), topic_data=[{"name": "t", "partition_data": parts}]
    )
    asked = [{"partition_index": number, "timestamp": 1_999} for number in range(20)]
    async with await Wire.open(broker.port) as other:
        await wire.send("list_offsets", topics=[{"name": "t", "partitions": asked}])
        search = asyncio.create_task(wire.receive())
        await other.call("api_versions")
        assert not search.done()
        assert {each.offset for each in (await search).topics[0].partitions} == {1_999}


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
