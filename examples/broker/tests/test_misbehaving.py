"""Bytes that are no request end their connection with one line in the log, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ..server import Broker, BrokerSettings
from .asks import batch, create, fetch_values, produce, values_in
from .conftest import Start
from .waits import until
from .wires import Wire, encoded, framed

GOOD = encoded("metadata", {"topics": None})
BAD = {
    "short": framed(b"\x00\x03"),
    "empty": framed(b""),
    "negative": (-1).to_bytes(4, signed=True),
    "oversized": ((16 << 20) + 1).to_bytes(4),
    "huge": (2**31 - 1).to_bytes(4),
    "unknown request": framed(b"\x7f\xff" + GOOD[2:]),
    "unknown version": framed(GOOD[:2] + b"\x00\x63" + GOOD[4:]),
    "cut": framed(GOOD[:-1]),
    "bytes after it": framed(GOOD + b"?"),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": framed(bytes(range(256))),
    "endless array": framed(GOOD[:-7] + b"\x7f\xff\xff\xff" + GOOD[-3:]),
}
NULL: dict[str, dict[str, Any]] = {
    "create_topics": {"topics": [{"name": "n", "assignments": None}]},
    "fetch": {"topics": [{"topic": "t", "partitions": None}]},
    "join_group": {"group_id": "g", "member_id": "m", "protocols": None},
    "leave_group": {"group_id": "g", "members": None},
    "list_offsets": {"topics": None},
    "produce": {"acks": 0, "topic_data": None},
}
# Lengths for which kio would take gigabytes, which may end the process, or read for seconds.
HEAD = encoded("delete_topics", {}).removesuffix(b"\x00\x01" + bytes(5))
OLD_HEAD = encoded("delete_topics", {}, version=3).removesuffix(bytes(8))
OLD_COMMIT = encoded("offset_commit", {}, version=2)[:2] + b"\x00\x01" + bytes(4 + 2 + 2 + 4 + 2)
LENGTHS = {
    "largest compact array": HEAD + b"\x00" + b"\xff\xff\xff\xff\x0f",
    "largest array": OLD_HEAD + b"\x7f\xff\xff\xff",
    "array below null": OLD_HEAD + b"\xff\xff\xff\xfe" + bytes(4),
    "number without an end": HEAD + b"\x00" + b"\xff" * 100_000 + b"\x01",
    "more items than allowed": HEAD + b"\x00" + b"\x82\x80\x01" + b"\x01" * (1 + (1 << 14)) + bytes(5),
    "more tags than allowed": HEAD + b"\x82\x80\x01" + bytes(2 + (2 << 14)) + b"\x01" + bytes(5),
    "more topics than allowed": OLD_COMMIT + (1 + (1 << 14)).to_bytes(4) + bytes(6 + (6 << 14)),
    "string of 32 KiB": HEAD + b"\x00" + b"\x02\x81\x80\x02" + b"g" * (1 << 15) + bytes(5),
}
BAD |= {name: framed(request) for name, request in LENGTHS.items()}
BAD |= {f"null array in {api}": framed(encoded(api, values)) for api, values in NULL.items()}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "broker"]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_request_that_is_none_ends_its_connection_alone(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    await create(wire, "t")
    await until(lambda: broker.fetches.statistics().pending == 2, "the followers wait")
    async with await Wire.open(broker.port) as other, await Wire.open(broker.port) as parked:
        await parked.send("fetch", **fetch_values("t", 0, wait=60.0))
        other.writer.write(bad)
        assert await other.rest() == b""
        (line,) = warnings_in(caplog)
        assert (line.levelname, line.exc_info) == ("WARNING", None)
        assert "the connection is closed" in line.getMessage()
        await produce(wire, "t", batch(b"x"))
        assert values_in((await parked.receive()).responses[0].partitions[0].records) == [b"x"]


async def test_request_that_comes_byte_by_byte_is_answered(wire: Wire) -> None:
    await wire.call("metadata", topics=None)
    frame = framed(encoded("api_versions", {}, version=0))
    for number in range(len(frame)):
        wire.writer.write(frame[number : number + 1])
        await wire.writer.drain()
        await asyncio.sleep(0)
    size = int.from_bytes(await wire.reader.readexactly(4))
    assert len(await wire.reader.readexactly(size)) == size


async def test_requests_sent_at_once_are_answered_in_order(wire: Wire) -> None:
    await create(wire, "t")
    await wire.send("fetch", **fetch_values("t", 0, wait=0.2))
    await wire.send("metadata", topics=None)
    assert hasattr(await wire.receive(), "responses")
    assert hasattr(await wire.receive(), "brokers")


async def test_request_of_the_largest_size_is_read(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start(BrokerSettings(max_request=len(GOOD)))
    async with await Wire.open(broker.port) as wire:
        assert (await wire.call("metadata", topics=None)).topics == ()
        wire.writer.write(framed(GOOD + b"?"))
        assert await wire.rest() == b""
        assert f"must have 0 to {len(GOOD)} bytes, got {len(GOOD) + 1}" in warnings_in(caplog)[0].getMessage()


async def test_api_versions_of_the_future_is_told_what_is_spoken(wire: Wire) -> None:
    future = encoded("api_versions", {}, version=3)
    wire.writer.write(framed(future[:2] + b"\x00\x63" + future[4:]))
    size = int.from_bytes(await wire.reader.readexactly(4))
    answer = await wire.reader.readexactly(size)
    assert int.from_bytes(answer[4:6], signed=True) == ErrorCode.unsupported_version
    assert int.from_bytes(answer[6:10]) >= 15


async def test_request_with_the_most_items_is_answered(broker: Broker, wire: Wire) -> None:
    names = ["g" * 32_767] + [f"g{number}" for number in range((1 << 14) - 1)]
    answer = await wire.call("delete_topics", topic_names=names)
    assert [each.name for each in answer.responses] == names


# a client that sends more than it reads


def noted(broker: Broker) -> list[tuple[str, str]]:
    """The request and the client of all that is handled from now on."""
    handled: list[tuple[str, str]] = []
    answer = broker.connections.answer

    def note(request: Any) -> Any:
        handled.append((request.api, request.client_id))
        return answer(request)

    broker.connections.answer = note
    return handled


async def test_client_that_does_not_read_is_not_answered_again(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    for _ in range(14):
        await produce(wire, "t", batch(bytes(1 << 20)[:-100]))
    handled = noted(broker)
    async with await Wire.open(broker.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send("fetch", **fetch_values("t", 0, wait=0.0, max_bytes=1 << 30))
        client.writer.write(framed(GOOD) * 3)
        await until(lambda: handled, "the fetch is handled")
        await asyncio.sleep(0.1)
        assert [api for api, _ in handled] == ["fetch"]
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await client.receive()
        await until(lambda: len(handled) == 4, "the others are handled")


async def test_client_that_sends_much_while_it_waits_is_not_read(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    async with await Wire.open(broker.port) as client:
        await client.send("fetch", **fetch_values("t", 0, wait=60.0))
        client.writer.write(framed(GOOD) * ((20 << 20) // len(GOOD)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.writer.drain()
        await produce(wire, "t", batch(b"x"))
        assert values_in((await client.receive()).responses[0].partitions[0].records) == [b"x"]
        for _ in range(1_000):
            await client.reader.readexactly(int.from_bytes(await client.reader.readexactly(4)))
        client.writer.transport.abort()


async def test_client_that_sends_much_at_once_does_not_delay_others(broker: Broker, wire: Wire) -> None:
    handled, many = noted(broker), 5_000
    async with await Wire.open(broker.port) as client:
        client.writer.write(framed(encoded("heartbeat", {}, client_id="many")) * many)
        wire.writer.write(framed(encoded("heartbeat", {}, client_id="one")))
        await until(lambda: ("heartbeat", "one") in handled, "the other request is handled")
        assert handled.index(("heartbeat", "one")) < 100
        await until(lambda: len(handled) == 1 + many, "all are handled")


async def test_request_of_many_mib_is_answered_alone(broker: Broker, wire: Wire) -> None:
    await create(wire, "t")
    async with await Wire.open(broker.port) as client:
        refused = await produce(client, "t", batch(*[bytes(1 << 20)] * 8))
        assert refused.error_code == ErrorCode.message_too_large
        assert (await produce(client, "t", batch(b"x"))).base_offset == 0
