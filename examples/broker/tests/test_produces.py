"""Batches appended and refused, and when a producer with acks=all is answered."""

from __future__ import annotations

import asyncio
import time

import pytest
from kio.schema.errors import ErrorCode

from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import EARLIEST, LATEST, batch, create, fetch, offset_at, produce, produce_values, values_in
from .conftest import Start
from .waits import until
from .wires import Wire, encoded, framed


async def end_of(wire: Wire, topic: str) -> int:
    return int((await offset_at(wire, topic, LATEST)).offset)


async def new_producer(wire: Wire) -> int:
    return int((await wire.call("init_producer_id")).producer_id)


# idempotent producers


async def test_batch_sent_again_is_answered_and_not_appended(wire: Wire) -> None:
    await create(wire, "t")
    producer = await new_producer(wire)
    first, second = (batch(b"a", b"b", producer=(producer, 0, 0)), batch(b"c", producer=(producer, 0, 2)))
    answers = [await produce(wire, "t", data) for data in (first, second, first, second)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(ErrorCode.none, at) for at in (0, 2, 0, 2)]
    assert values_in((await fetch(wire, "t", 0, wait=0.0)).records) == [b"a", b"b", b"c"]


async def test_batch_after_a_gap_is_refused(wire: Wire) -> None:
    await create(wire, "t")
    producer = await new_producer(wire)
    await produce(wire, "t", batch(b"a", producer=(producer, 0, 0)))
    refused = await produce(wire, "t", batch(b"c", producer=(producer, 0, 2)))
    assert refused.error_code == ErrorCode.out_of_order_sequence_number
    follows = await produce(wire, "t", batch(b"b", producer=(producer, 0, 1)))
    assert (follows.error_code, follows.base_offset) == (ErrorCode.none, 1)
    assert await end_of(wire, "t") == 2


async def test_batch_of_an_older_epoch_is_refused(wire: Wire) -> None:
    await create(wire, "t")
    producer = await new_producer(wire)
    await produce(wire, "t", batch(b"a", producer=(producer, 1, 0)))
    assert (await produce(wire, "t", batch(b"b", producer=(producer, 0, 1)))).error_code == (
        ErrorCode.invalid_producer_epoch
    )
    assert (await produce(wire, "t", batch(b"b", producer=(producer, 2, 0)))).base_offset == 1


async def test_batches_of_two_producers_do_not_meet(wire: Wire) -> None:
    await create(wire, "t")
    one, two = await new_producer(wire), await new_producer(wire)
    answers = [await produce(wire, "t", batch(b"x", producer=(producer, 0, 0))) for producer in (one, two)]
    assert [each.base_offset for each in answers] == [0, 1]


# no batch at all


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.corrupt_message),
        (b"", ErrorCode.corrupt_message),
        (batch(b"x")[:-1], ErrorCode.corrupt_message),
        (batch(b"x")[:-1] + b"?", ErrorCode.corrupt_message),
        (batch(b"x") * 2, ErrorCode.corrupt_message),
        (batch(b"x")[:16] + b"\x01" + batch(b"x")[17:], ErrorCode.unsupported_for_message_format),
    ],
    ids=["none", "empty", "cut", "changed", "two", "old"],
)
async def test_batch_that_is_none_is_refused(wire: Wire, data: bytes | None, code: ErrorCode) -> None:
    await create(wire, "t")
    assert (await produce(wire, "t", data)).error_code == code
    assert (await produce(wire, "t", batch(b"x"))).base_offset == 0


@pytest.mark.parametrize("acks", [-2, 2, 3])
async def test_produce_with_strange_acks_is_refused(wire: Wire, acks: int) -> None:
    await create(wire, "t")
    assert (await produce(wire, "t", batch(b"x"), acks=acks)).error_code == ErrorCode.invalid_required_acks
    assert await end_of(wire, "t") == 0


async def test_produce_of_an_unknown_topic_is_refused_alone(wire: Wire) -> None:
    await create(wire, "t")
    values = produce_values("t", batch(b"x"))
    values["topic_data"] += produce_values("nothing", batch(b"x"))["topic_data"]
    answer = await wire.call("produce", **values)
    assert {each.name: each.partition_responses[0].error_code for each in answer.responses} == {
        "t": ErrorCode.none,
        "nothing": ErrorCode.unknown_topic_or_partition,
    }


async def test_produce_without_acks_is_not_answered(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    wire.writer.write(framed(encoded("produce", produce_values("t", batch(b"x"), acks=0))))
    assert (await offset_at(wire, "t", EARLIEST)).offset == 0  # the next answer is that to the next request
    assert broker.topics["t"][0].log.end == 1


@pytest.mark.parametrize(("topic", "data"), [("nothing", batch(b"x")), ("t", b"no batch")], ids=["topic", "batch"])
async def test_produce_without_acks_that_is_refused_ends_its_connection(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, topic: str, data: bytes
) -> None:
    await create(wire, "t")
    async with await Wire.open(broker.port) as other:
        other.writer.write(framed(encoded("produce", produce_values(topic, data, acks=0))))
        assert await other.rest() == b""
    assert f"a batch for {topic}-0 was refused" in caplog.text
    assert await end_of(wire, "t") == 0


# replicas


async def test_produce_with_too_few_in_sync_appends_nothing(start: Start) -> None:
    broker = await start(BrokerSettings(partition=Settings(max_lag=0.2)))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        await stall(broker, True)
        await produce(wire, "t", batch(b"a"), acks=1)  # the followers lag now
        await until(lambda: len(broker.topics["t"][0].replicas.in_sync) == 1, "both followers are dropped")
        refused = await produce(wire, "t", batch(b"b"))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.not_enough_replicas, -1)
        assert broker.topics["t"][0].log.end == 1
        await stall(broker, False)
        await until(lambda: len(broker.topics["t"][0].replicas.in_sync) == 3, "they are in sync again")
        assert (await produce(wire, "t", batch(b"b"))).base_offset == 1


async def stall(broker: Broker, stalled: bool, topic: str = "t") -> None:
    """Stop both followers of *topic* where they ask for more next, or let them go on."""
    for follower in broker.topics[topic][0].followers:
        follower.stall(stalled)
    await asyncio.sleep(0)


async def test_produce_with_stalled_follower_times_out_and_recovers(broker: Broker, wire: Wire) -> None:
    for topic in ("t", "other"):
        await create(wire, topic)
        await produce(wire, topic, batch(b"a"))
    broker.topics["t"][0].followers[0].stall(True)
    await produce(
        wire, "t", batch(b"b"), acks=1
    )  # answers the fetch that it has sent already, and which it acks with its next
    begin = time.monotonic()
    late = await produce(wire, "t", batch(b"c"), timeout=0.3)
    assert time.monotonic() - begin >= 0.3
    assert late.error_code == ErrorCode.request_timed_out
    assert (await produce(wire, "t", batch(b"d"), acks=1)).error_code == ErrorCode.none
    assert (await produce(wire, "other", batch(b"b"))).error_code == ErrorCode.none
    assert await end_of(wire, "t") == 1  # consumers see records that both followers have acked
    async with await Wire.open(broker.port) as second:
        await second.send("produce", **produce_values("t", batch(b"e")))
        await until(lambda: broker.acks.statistics().pending > pending_sessions(broker), "it waits for the follower")
        broker.topics["t"][0].followers[0].stall(False)
        answer = (await second.receive()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 4)
    assert values_in((await fetch(wire, "t", 0, wait=0.0)).records) == [b"a", b"b", b"c", b"d", b"e"]


def pending_sessions(broker: Broker) -> int:
    """How many followers are watched for lagging behind: these wait in the same purgatory."""
    return sum(len(partition.followers) for parts in broker.topics.values() for partition in parts)


async def test_records_are_read_when_all_in_sync_have_them(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"a"))
    broker.topics["t"][0].followers[1].stall(True)
    await produce(wire, "t", batch(b"b"), acks=1)
    assert values_in((await fetch(wire, "t", 0, wait=0.2, min_bytes=1_000)).records) == [b"a"]
    broker.topics["t"][0].followers[1].stall(False)
    assert values_in((await fetch(wire, "t", 1, wait=60.0)).records) == [b"b"]


async def test_produce_is_told_that_its_topic_is_deleted(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"a"))
    await stall(broker, True)
    await produce(wire, "t", batch(b"b"), acks=1)
    async with await Wire.open(broker.port) as producer:
        await producer.send("produce", **produce_values("t", batch(b"c"), timeout=60.0))
        await until(lambda: broker.topics["t"][0].log.end == 3, "it is appended")
        await wire.call("delete_topics", topic_names=["t"])
        answer = (await producer.receive()).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


async def test_stop_acks_nothing_that_the_followers_have_not(start: Start) -> None:
    broker = await start(BrokerSettings(partition=Settings(lag=60.0, max_lag=60.0, min_in_sync=1)))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        await wire.send("produce", **produce_values("t", batch(b"x"), timeout=60.0))
        await until(lambda: broker.topics["t"][0].log.end == 1, "it is appended")
        await broker.close()
        assert (await wire.receive()).responses[0].partition_responses[0].error_code == ErrorCode.request_timed_out
