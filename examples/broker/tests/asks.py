"""The requests that tests make again and again, with one topic and one partition each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from .wires import Wire

#: The offsets that stand for the end of the log, and for its first record.
LATEST: Final = -1
EARLIEST: Final = -2


def batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1), timestamp: int = 1_000) -> bytes:
    """Records as one batch. *producer*: its id, its epoch, and the sequence number of the first record."""
    names = ("producer_id", "producer_epoch", "base_sequence")
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, batch_size=1 << 20, **dict(zip(names, producer, strict=True))
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp=timestamp, key=None, value=value, headers=[])
    return bytes(builder.build())


def values_in(data: bytes | None) -> list[bytes]:
    """The values of the records in *data*."""
    data, values = data or b"", []
    while data:
        size = 12 + int.from_bytes(data[8:12])
        values += [record.value for record in DefaultRecordBatch(bytearray(data[:size]))]
        data = data[size:]
    return values


async def create(wire: Wire, topic: str, partitions: int = 1) -> None:
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    answer = await wire.call("create_topics", topics=[wanted])
    assert [each.error_code for each in answer.topics] == [ErrorCode.none]


def produce_values(topic: str, data: bytes | None, *, acks: int = -1, timeout: float = 10.0) -> dict[str, Any]:
    parts = [{"index": 0, "records": data}]
    return {
        "acks": acks,
        "timeout": timedelta(seconds=timeout),
        "topic_data": [{"name": topic, "partition_data": parts}],
    }


async def produce(wire: Wire, topic: str, data: bytes | None, *, acks: int = -1, timeout: float = 10.0) -> Any:
    """The answer for the partition."""
    answer = await wire.call("produce", **produce_values(topic, data, acks=acks, timeout=timeout))
    return answer.responses[0].partition_responses[0]


def fetch_values(
    topic: str, offset: int, *, wait: float, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {
        "max_wait": timedelta(seconds=wait),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": [{"topic": topic, "partitions": [part]}],
    }


async def fetch(
    wire: Wire, topic: str, offset: int, *, wait: float, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> Any:
    """The answer for the partition."""
    values = fetch_values(topic, offset, wait=wait, min_bytes=min_bytes, max_bytes=max_bytes)
    return (await wire.call("fetch", **values)).responses[0].partitions[0]


async def offset_at(wire: Wire, topic: str, timestamp: int) -> Any:
    """The answer for the partition."""
    parts = [{"partition_index": 0, "timestamp": timestamp}]
    answer = await wire.call("list_offsets", topics=[{"name": topic, "partitions": parts}])
    return answer.topics[0].partitions[0]


def join_values(
    group: str, member: str = "", *, protocol: str = "range", kind: str = "consumer", session: float = 10.0
) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "session_timeout": timedelta(seconds=session),
        "rebalance_timeout": timedelta(seconds=10),
        "protocol_type": kind,
        "protocols": [{"name": protocol, "metadata": b"what it wants"}],
    }


async def named(wire: Wire, group: str, **values: Any) -> str:
    """The name of a new member."""
    answer = await wire.call("join_group", **join_values(group, **values))
    assert answer.error_code == ErrorCode.member_id_required
    return str(answer.member_id)
