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
    "oversized": ((100 << 20) + 1).to_bytes(4),
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
    "delete_records": {"topics": [{"name": "t", "partitions": None}]},
    "elect_leaders": {"topic_partitions": [{"topic": "t", "partitions": None}]},
    "fetch": {"topics": [{"topic": "t", "partitions": None}]},
    "join_group": {"group_id": "g", "member_id": "m", "protocols": None},
    "leave_group": {"group_id": "g", "members": None},
    "list_offsets": {"topics": None},
    "produce": {"acks": 0, "topic_data": None},
}
# Lengths for which kio would take gigabytes, which may end the process, or read for seconds.
HEAD = encoded("describe_groups", {}).removesuffix(b"\x00\x01\x00\x00")
OLD_HEAD = encoded("describe_groups", {}, version=4).removesuffix(b"\x00\x00\x00\x00\x00")
OLD_COMMIT = encoded("offset_commit", {}, version=2)[:2] + b"\x00\x01" + bytes(4 + 2 + 2 + 4 + 2)
LENGTHS = {
    "largest compact array": HEAD + b"\x00" + b"\xff\xff\xff\xff\x0f",
    "largest array": OLD_HEAD + b"\x7f\xff\xff\xff",
    "array below null": OLD_HEAD + b"\xff\xff\xff\xfe" + b"\x00",
    "number without an end": HEAD + b"\x00" + b"\xff" * 100_000 + b"\x01",
    "more items than allowed": HEAD + b"\x00" + b"\x82\x80\x01" + b"\x01" * (1 + (1 << 14)) + bytes(2),
    "more tags than allowed": HEAD + b"\x82\x80\x01" + bytes(2 + (2 << 14)) + b"\x01\x00\x00",
    "more topics than allowed": OLD_COMMIT + (1 + (1 << 14)).to_bytes(4) + bytes(6 + (6 << 14)),
    "string of 32 KiB": HEAD + b"\x00" + b"\x02\x81\x80\x02" + b"g" * (1 << 15) + bytes(2),
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


async def test_request_after_good_ones_ends_its_connection(broker: Broker, wire: Wire) -> None:
    await wire.call("metadata", topics=None)
    wire.writer.write(BAD["cut"])
    assert await wire.rest() == b""
    async with await Wire.open(broker.port) as other:
        assert (await other.call("metadata", topics=None)).brokers[0].port == broker.port


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
    answer = await wire.call("describe_groups", groups=names)
    assert [each.group_id for each in answer.groups] == names
