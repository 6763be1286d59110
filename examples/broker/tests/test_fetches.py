"""A fetch waits until there is enough, until its time is up, or until there is nothing left to wait for."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ..records import shared
from ..server import Broker, BrokerSettings
from .asks import batch, create, fetch, fetch_values, produce, values_in
from .conftest import Start
from .waits import until
from .wires import Wire


async def park(broker: Broker, wire: Wire, topic: str, *, wait: float = 60.0, min_bytes: int = 1) -> None:
    """Send a fetch at the beginning of *topic*, and wait until it waits."""
    before = broker.fetches.statistics().pending
    await wire.send("fetch", **fetch_values(topic, 0, wait=wait, min_bytes=min_bytes))
    await until(lambda: broker.fetches.statistics().pending > before, "the fetch waits")


async def test_fetch_is_answered_when_min_bytes_are_there(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    size = len(batch(b"x" * 100))
    async with await Wire.open(broker.port) as consumer:
        await park(broker, consumer, "t", min_bytes=2 * size)
        parked = broker.fetches.statistics().pending
        await produce(wire, "t", batch(b"x" * 100))  # which the followers have read then
        assert broker.fetches.statistics().pending == parked
        await produce(wire, "t", batch(b"y" * 100))
        found = (await consumer.receive()).responses[0].partitions[0]
        assert values_in(found.records) == [b"x" * 100, b"y" * 100]


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.floats(0, 0.09))
@example(60_000, 1, 0.0)  # a client's own timeout may be little longer
def test_fetches_that_begin_at_nearly_the_same_time_end_together(wait_ms: int, now: int, later: float) -> None:
    wait = wait_ms / 1000
    begins = now, now + later * min(wait, 5)
    first, second = (begin + shared(wait, begin) for begin in begins)
    step = min(wait / 10, 0.5)
    assert second - first == pytest.approx(0, abs=1e-6) or second - first == pytest.approx(step, abs=1e-6)
    assert all(wait <= shared(wait, begin) <= wait + step + 1e-6 for begin in begins)


async def test_fetch_with_too_few_bytes_is_answered_at_its_deadline(wire: Wire) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"x"))
    begin = time.monotonic()
    found = await fetch(wire, "t", 0, wait=0.3, min_bytes=10_000)
    assert 0.3 <= time.monotonic() - begin < 10
    assert values_in(found.records) == [b"x"]


async def test_fetch_with_no_wait_is_answered_at_once(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    parked = broker.fetches.statistics().pending
    assert (await fetch(wire, "t", 0, wait=0.0)).records in (None, b"")
    assert broker.fetches.statistics().pending == parked


async def test_fetch_takes_one_batch_larger_than_its_limit(wire: Wire) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"x" * 5_000))
    await produce(wire, "t", batch(b"y"))
    found = await fetch(wire, "t", 0, wait=0.0, max_bytes=100)
    assert values_in(found.records) == [b"x" * 5_000]


async def test_fetch_of_everything_is_limited_by_the_broker(start: Start) -> None:
    data = batch(b"x" * 5_000)
    broker = await start(BrokerSettings(max_answer=2 * len(data)))
    async with await Wire.open(broker.port) as wire:
        for topic in ("t", "other"):
            await create(wire, topic)
            for _ in range(3):
                await produce(wire, topic, data)
        values = fetch_values("t", 0, wait=60.0, min_bytes=(1 << 31) - 1, max_bytes=(1 << 31) - 1)
        values["topics"] += fetch_values("other", 0, wait=60.0)["topics"]
        answer = await wire.call("fetch", **values)
        assert [len(each.partitions[0].records or b"") for each in answer.responses] == [2 * len(data), 0]
        assert len(values_in((await fetch(wire, "t", 2, wait=0.0)).records)) == 1


async def test_fetch_is_told_that_its_topic_is_deleted(broker: Broker, wire: Wire) -> None:
    for topic in ("t", "other"):
        await create(wire, topic)
    async with await Wire.open(broker.port) as one, await Wire.open(broker.port) as other:
        await park(broker, one, "t")
        await park(broker, other, "other")
        answer = await wire.call("delete_topics", topic_names=["t"], timeout=timedelta(seconds=5))
        assert [each.error_code for each in answer.responses] == [ErrorCode.none]
        found = (await one.receive()).responses[0].partitions[0]
        assert found.error_code == ErrorCode.unknown_topic_or_partition
        await produce(wire, "other", batch(b"still there"))
        assert values_in((await other.receive()).responses[0].partitions[0].records) == [b"still there"]
    await until(lambda: broker.fetches.statistics().pending == 2, "only the other topic's followers wait")


@pytest.mark.parametrize("topic", ["nothing", "t"])
async def test_fetch_of_what_is_not_there_is_refused_at_once(wire: Wire, topic: str) -> None:
    await create(wire, "t")
    values = fetch_values(topic, 0, wait=60.0)
    values["topics"][0]["partitions"][0]["partition"] = 7
    found = (await wire.call("fetch", **values)).responses[0].partitions[0]
    assert found.error_code == ErrorCode.unknown_topic_or_partition
