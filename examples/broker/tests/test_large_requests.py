"""Requests of up to 100 MiB are read, within a bound for all of them; a batch that is too large is refused alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import MessageSizeTooLargeError
from kio.schema.errors import ErrorCode

from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import LATEST, batch, create, offset_at, produce, produce_values
from .conftest import Start
from .served import PATIENCE, Served
from .waits import until
from .wires import Wire, encoded, framed

MIB = 1 << 20


def request(*sizes: int, topic: str = "t") -> bytes:
    """A produce request with a batch of one record of each size for partition 0, 1 and so on."""
    values = produce_values(topic, None)
    values["topic_data"][0]["partition_data"] = [
        {"index": number, "records": batch(bytes(size))} for number, size in enumerate(sizes)
    ]
    return framed(encoded("produce", values))


async def answered(wire: Wire) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await wire.reader.readexactly(int.from_bytes(await wire.reader.readexactly(4)))


# sizes


async def test_request_of_60_mib_is_answered(wire: Wire) -> None:
    await create(wire, "t", partitions=60)
    wire.writer.write(request(*[MIB - 100] * 60))
    await answered(wire)
    assert (await offset_at(wire, "t", LATEST)).offset == 1
    assert (await produce(wire, "t", batch(b"x"))).base_offset == 1


@pytest.mark.parametrize("size", [*range(65_533, 65_538)])
@pytest.mark.parametrize("cut", [*range(65_536, 65_540)])
async def test_request_of_64_kib_may_come_in_two_parts(wire: Wire, size: int, cut: int) -> None:
    await create(wire, "t")
    rest = size + 4 - len(request(0))
    data = request(rest - 4)  # the lengths in it take up to four bytes more
    data = request(rest - 4 + size + 4 - len(data))
    assert len(data) == size + 4
    wire.writer.write(data[:cut])
    await asyncio.sleep(0.02)
    wire.writer.write(data[cut:])
    await answered(wire)


async def test_request_above_100_mib_ends_its_connection(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.writer.write((100 * MIB + 1).to_bytes(4))
    assert await wire.rest() == b""
    assert "must have 0 to 104857600 bytes, got 104857601" in caplog.text


async def test_batch_that_is_too_large_is_refused_alone(wire: Wire) -> None:
    await create(wire, "t", partitions=2)
    values = produce_values("t", None)
    batches = [batch(bytes(1_048_588)), batch(bytes(1_048_588 - 100))]
    values["topic_data"][0]["partition_data"] = [{"index": at, "records": data} for at, data in enumerate(batches)]
    answer = await wire.call("produce", **values)
    codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {0: ErrorCode.message_too_large, 1: ErrorCode.none}
    assert (await produce(wire, "t", batch(b"x"))).base_offset == 0  # on the same connection


async def test_batch_of_exactly_the_largest_size_is_appended(start: Start) -> None:
    data = batch(b"x" * 1_000)
    for less, code in ((0, ErrorCode.none), (1, ErrorCode.message_too_large)):
        broker = await start(BrokerSettings(partition=Settings(max_batch=len(data) - less)))
        async with await Wire.open(broker.port) as wire:
            await create(wire, "t")
            assert (await produce(wire, "t", data)).error_code == code


async def test_topic_may_have_a_largest_size_of_its_own(wire: Wire) -> None:
    configs = [{"name": "max.message.bytes", "value": "1000"}]
    topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}]
    await wire.call("create_topics", topics=topics)
    assert (await produce(wire, "t", batch(bytes(1_000)))).error_code == ErrorCode.message_too_large
    assert (await produce(wire, "t", batch(bytes(900)))).error_code == ErrorCode.none


async def test_producer_of_aiokafka_is_told_that_its_batch_is_too_large(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    settings = {"bootstrap_servers": f"127.0.0.1:{broker.port}", "max_request_size": 20 * MIB}
    async with aiokafka.AIOKafkaProducer(**settings, max_batch_size=20 * MIB) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait("t", bytes(8 * MIB), partition=0)
        assert (await producer.send_and_wait("t", b"x", partition=0)).offset == 0


def test_producer_of_librdkafka_is_told_that_its_batch_is_too_large(served: Served) -> None:
    errors: list[int | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": served.address, "message.max.bytes": 20 * MIB})
    for size in (8 * MIB, 1):
        producer.produce("large", bytes(size), partition=0, on_delivery=lambda error, _: errors.append(code_in(error)))
        assert producer.flush(PATIENCE) == 0
    assert errors == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE, None]


def code_in(error: confluent_kafka.KafkaError | None) -> int | None:
    return None if error is None else int(error.code())


# the bound


@pytest.fixture
async def narrow(start: Start) -> Broker:
    """A broker that reads 1 MiB at once."""
    return await start(BrokerSettings(max_request=MIB, max_reading=MIB))


@pytest.fixture
async def holder(narrow: Broker) -> AsyncIterator[Wire]:
    """A connection that has sent most of a request of 600 KiB, and holds that room."""
    async with await Wire.open(narrow.port) as holder:
        await create(holder, "t")
        holder.writer.write(request(600 << 10)[:-1])
        await asyncio.sleep(0.05)
        yield holder


def waiting(broker: Broker) -> int:
    """How many requests wait for room: the first in the queue is an operation."""
    return len(broker.reads.waiting("room"))


async def test_request_without_room_waits_and_small_ones_do_not(narrow: Broker, holder: Wire) -> None:
    async with await Wire.open(narrow.port) as second, await Wire.open(narrow.port) as small:
        second.writer.write(request(600 << 10))
        await until(lambda: waiting(narrow) == 1, "it waits")
        assert (await produce(small, "t", batch(b"x"))).base_offset == 0
        assert waiting(narrow) == 1
        holder.writer.write(request(600 << 10)[-1:])
        await answered(holder)
        await answered(second)
        assert (await offset_at(small, "t", LATEST)).offset == 3


async def test_large_request_is_not_overtaken_by_one_that_has_room(narrow: Broker, holder: Wire) -> None:
    async with await Wire.open(narrow.port) as large, await Wire.open(narrow.port) as smaller:
        large.writer.write(request(900 << 10))
        await until(lambda: waiting(narrow) == 1, "it waits")
        smaller.writer.write(request(100 << 10))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await smaller.reader.readexactly(1)
        holder.writer.write(request(600 << 10)[-1:])
        for wire in (holder, large, smaller):
            await answered(wire)


async def test_room_of_a_client_that_leaves_is_free_again(narrow: Broker, holder: Wire) -> None:
    async with await Wire.open(narrow.port) as second:
        second.writer.write(request(600 << 10))
        await until(lambda: waiting(narrow) == 1, "it waits")
        await holder.close()
        await answered(second)


async def test_client_that_leaves_its_place_in_the_queue_lets_others_go_on(narrow: Broker, holder: Wire) -> None:
    async with await Wire.open(narrow.port) as second, await Wire.open(narrow.port) as third:
        second.writer.write(request(600 << 10))
        await until(lambda: waiting(narrow) == 1, "it waits")
        third.writer.write(request(300 << 10))
        second.writer.transport.abort()
        holder.writer.write(request(600 << 10)[-1:])
        await answered(holder)
        await answered(third)


@pytest.mark.parametrize("sent", [4, 600 << 10], ids=["its length alone", "all but one byte"])
async def test_sender_that_stops_loses_its_room_soon(
    narrow: Broker, caplog: pytest.LogCaptureFixture, sent: int
) -> None:
    data = request(800 << 10)
    async with await Wire.open(narrow.port) as stops, await Wire.open(narrow.port) as second:
        await create(second, "t")
        stops.writer.write(data[:sent])
        await asyncio.sleep(0.05)
        second.writer.write(data)
        assert await stops.rest() == b""
        await answered(second)
    assert "arrives too slowly" in caplog.text


async def test_sender_that_goes_on_keeps_its_room(narrow: Broker) -> None:
    narrow.connections.grace = 0.5
    data = request(1_000 << 10)
    async with await Wire.open(narrow.port) as wire:
        await create(wire, "t")
        begin = time.monotonic()
        for part in range(0, len(data), 1 << 15):
            wire.writer.write(data[part : part + (1 << 15)])
            await wire.writer.drain()
            await asyncio.sleep(max(begin + part / 1.5e6 - time.monotonic(), 0.0))
        assert time.monotonic() - begin > narrow.connections.grace
        await answered(wire)


async def test_many_large_requests_at_once_are_all_answered(narrow: Broker) -> None:
    wires = [await Wire.open(narrow.port) for _ in range(30)]
    await create(wires[0], "t")
    for number, wire in enumerate(wires):
        wire.writer.write(request((100 + 30 * number) << 10))
    await asyncio.gather(*map(answered, wires))
    assert (await offset_at(wires[0], "t", LATEST)).offset == len(wires)
    for wire in wires:
        await wire.close()


async def test_stop_does_not_wait_for_requests_without_room(narrow: Broker, holder: Wire) -> None:
    async with await Wire.open(narrow.port) as second:
        second.writer.write(request(600 << 10))
        await until(lambda: waiting(narrow) == 1, "it waits")
        async with asyncio.timeout(2):
            await narrow.close()
