"""Encodes requests and decodes answers with kio, in the versions used here."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

_KEYS: Final = {name: key for key, name in api_key_map.items()}
_VERSIONS: Final = {"produce": 8, "fetch": 11, "create_topics": 4, "delete_topics": 3}


def batch(value: bytes) -> bytes:
    """A batch of one record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    builder.append(0, timestamp=1_000, key=None, value=value, headers=[])
    return bytes(builder.build())


def produce(records: Mapping[tuple[str, int], bytes], *, timeout: float = 10.0, acks: int = -1) -> bytes:
    """*records*: a batch for each partition."""
    topics = tuple(
        _part("produce", "TopicProduceData", name=name, partition_data=(_data(number, data),))
        for (name, number), data in records.items()
    )
    return _request("produce", transactional_id=None, acks=acks, timeout=timedelta(seconds=timeout), topic_data=topics)


def fetch(
    offsets: Mapping[tuple[str, int], int], *, wait: float, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> bytes:
    """*offsets*: for each partition where to begin. *wait*: in seconds."""
    topics = tuple(
        _part("fetch", "FetchTopic", topic=name, partitions=(_place(number, offset, max_bytes),))
        for (name, number), offset in offsets.items()
    )
    sizes = {"min_bytes": min_bytes, "max_bytes": max_bytes}
    return _request("fetch", max_wait=timedelta(seconds=wait), **sizes, topics=topics, forgotten_topics_data=())


def create_topic(name: str, partitions: int) -> bytes:
    topic = _part(
        "create_topics",
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=(),
    )
    return _request("create_topics", topics=(topic,), timeout=timedelta(seconds=10))


def delete_topic(name: str) -> bytes:
    return _request("delete_topics", topic_names=(name,), timeout=timedelta(seconds=10))


def answer(api: str, frame: bytes) -> Any:
    """Decode the answer to a request of *api* from *frame*, which comes without its length."""
    schema = load_response_schema(_KEYS[api], _VERSIONS[api])
    _, begin = entity_reader(schema.__header_schema__)(frame, 0)
    return entity_reader(schema)(frame, begin)[0]


def _data(number: int, data: bytes) -> Any:
    return _part("produce", "PartitionProduceData", index=number, records=data)


def _place(number: int, offset: int, max_bytes: int) -> Any:
    return _part("fetch", "FetchPartition", partition=number, fetch_offset=offset, partition_max_bytes=max_bytes)


@cache
def _schema(api: str) -> Any:
    return load_request_schema(_KEYS[api], _VERSIONS[api])


def _part(api: str, kind: str, **values: Any) -> Any:
    return getattr(__import__(_schema(api).__module__, fromlist=[kind]), kind)(**values)


def _request(api: str, **values: Any) -> bytes:
    """With its length."""
    schema = _schema(api)
    header: Any = schema.__header_schema__
    out = io.BytesIO(bytes(4))
    out.seek(4)
    numbers = {"request_api_key": schema.__api_key__, "request_api_version": schema.__version__}
    entity_writer(header)(out, header(**numbers, correlation_id=0, client_id="bench"))
    entity_writer(schema)(out, schema(**values))
    frame = out.getvalue()
    return (len(frame) - 4).to_bytes(4) + frame[4:]
