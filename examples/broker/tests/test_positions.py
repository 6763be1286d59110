"""Where a consumer begins: at the start, at the end, at a time, and where there is nothing."""

from __future__ import annotations

import aiokafka
import pytest
from kio.schema.errors import ErrorCode

from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import EARLIEST, LATEST, batch, create, fetch, offset_at, produce, values_in
from .conftest import Start
from .wires import Wire


async def write(wire: Wire, topic: str, *timestamps: int) -> None:
    await create(wire, topic)
    for number, timestamp in enumerate(timestamps):
        assert (await produce(wire, topic, batch(b"%d" % number, timestamp=timestamp))).base_offset == number


async def test_consumer_seeks_to_a_time(broker: Broker, wire: Wire) -> None:
    await write(wire, "t", 1_000, 2_000, 3_000)
    partition = aiokafka.TopicPartition("t", 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=f"127.0.0.1:{broker.port}") as consumer:
        consumer.assign([partition])
        found = await consumer.offsets_for_times({partition: 1_001})
        consumer.seek(partition, found[partition].offset)
        assert ((await consumer.getone()).value, found[partition].timestamp) == (b"1", 2_000)
        assert await consumer.offsets_for_times({partition: 3_001}) == {partition: None}


async def test_list_offsets_tells_start_end_and_time(wire: Wire) -> None:
    await write(wire, "t", 1_000, 2_000)
    found = [await offset_at(wire, "t", timestamp) for timestamp in (EARLIEST, LATEST, 0, 1_001, 2_001, -3)]
    assert [each.offset for each in found] == [0, 2, 0, 1, -1, -1]
    assert [each.error_code for each in found] == [ErrorCode.none] * 5 + [ErrorCode.unsupported_version]


@pytest.mark.parametrize("offset", [-1, 2])
async def test_fetch_out_of_range_is_refused_at_once(wire: Wire, offset: int) -> None:
    await write(wire, "t", 1)
    assert (await fetch(wire, "t", 1, wait=0.0)).error_code == ErrorCode.none  # the end is in range
    assert (await fetch(wire, "t", offset, wait=60.0)).error_code == ErrorCode.offset_out_of_range


async def test_log_over_its_size_loses_its_oldest(start: Start) -> None:
    broker = await start(BrokerSettings(partition=Settings(max_bytes=1_000)))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        for number in range(40):
            await produce(wire, "t", batch(b"%02d" % number))
        begin = (await offset_at(wire, "t", EARLIEST)).offset
        assert 0 < begin < 40
        assert (await fetch(wire, "t", 0, wait=60.0)).error_code == ErrorCode.offset_out_of_range
        rest = values_in((await fetch(wire, "t", begin, wait=0.0)).records)
        assert rest == [b"%02d" % number for number in range(begin, 40)]
        assert (await offset_at(wire, "t", LATEST)).offset == 40
