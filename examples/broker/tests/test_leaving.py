"""A client that leaves takes its operations along. Those of others stay."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from kio.schema.errors import ErrorCode

from aiopurgatory import Purgatory, Statistics

from ..replication import Settings
from ..server import Broker, BrokerSettings
from .asks import batch, create, produce_values
from .conftest import Start
from .parking import LONG, PREPARED
from .waits import until
from .wires import Wire, encoded, framed


@pytest.fixture
async def lagging(start: Start) -> Broker:
    """A broker that acks nothing for long."""
    return await start(BrokerSettings(partition=Settings(lag=LONG, max_lag=LONG)))


@pytest.fixture
async def helper(lagging: Broker) -> AsyncIterator[Wire]:
    async with await Wire.open(lagging.port) as helper:
        yield helper


def named(broker: Broker, name: str) -> Purgatory:
    return next(purgatory for purgatory in broker.purgatories if purgatory.statistics().name == name)


async def park(broker: Broker, api: str, wire: Wire, helper: Wire) -> Statistics:
    """Send a request on *wire* that waits. Returns: the figures of its purgatory then."""
    name, prepare = PREPARED[api]
    values = await prepare(wire, helper)
    purgatory = named(broker, name)
    before = purgatory.statistics().pending
    await wire.send(api, **values)
    await until(lambda: purgatory.statistics().pending > before, f"{api} waits")
    return purgatory.statistics()


def reset(wire: Wire) -> None:
    wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.writer.transport.abort()


def shut_down(wire: Wire) -> None:
    wire.writer.write_eof()


def close(wire: Wire) -> None:
    wire.writer.close()


@pytest.mark.parametrize("api", PREPARED)
@pytest.mark.parametrize("leave", [close, reset, shut_down])
async def test_client_that_leaves_while_it_waits_leaves_nothing(
    lagging: Broker, helper: Wire, api: str, leave: Callable[[Wire], None]
) -> None:
    purgatory = named(lagging, PREPARED[api][0])
    async with await Wire.open(lagging.port) as wire:
        parked = await park(lagging, api, wire, helper)
        leave(wire)
        await until(lambda: purgatory.statistics().cancelled > parked.cancelled, f"{api} is gone")
    end = purgatory.statistics()
    assert (end.pending, end.cancelled) == (parked.pending - 1, parked.cancelled + 1)


async def test_client_that_stays_keeps_what_it_waits_for(lagging: Broker, helper: Wire) -> None:
    port = lagging.port
    async with await Wire.open(port) as stays, await Wire.open(port) as leaves:
        await park(lagging, "fetch", stays, helper)
        begin = await park(lagging, "produce", leaves, helper)
        waiting = lagging.fetches.statistics().pending
        close(leaves)
        await until(lambda: lagging.acks.statistics().pending == begin.pending - 1, "one is gone")
        assert lagging.fetches.statistics().pending == waiting
        await helper.call("delete_topics", topic_names=["to-fetch"])
        answer = (await stays.receive()).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("size", [10, 2_000, 100_000])
@pytest.mark.parametrize("leave", [close, shut_down])
async def test_records_of_a_producer_that_leaves_without_acks_are_appended(
    broker: Broker, wire: Wire, leave: Callable[[Wire], None], size: int
) -> None:
    await create(wire, "t")
    many = 20
    async with await Wire.open(broker.port) as producer:
        request = framed(encoded("produce", produce_values("t", batch(bytes(size)), acks=0)))
        producer.writer.write(request * many)
        leave(producer)
        assert await producer.rest() == b""
    log = broker.partition("t", 0).log
    await until(lambda: log.end == many, "all are appended")


async def test_client_that_leaves_waits_for_none_of_its_requests(lagging: Broker, helper: Wire) -> None:
    await create(helper, "t")
    async with await Wire.open(lagging.port) as wire:
        for number in range(20):
            await wire.send("produce", **produce_values("t", batch(b"%d" % number), timeout=LONG))
    log = lagging.partition("t", 0).log
    await until(lambda: log.end == 20, "all are appended")
    await until(lambda: lagging.acks.statistics().cancelled == 20, "none waits")
