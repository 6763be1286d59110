"""Each of the three clients writes and reads records, against a broker in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from .clients import (
    WRITTEN,
    begin_confluent,
    read_aiokafka,
    read_confluent,
    read_kafka_python,
    write_aiokafka,
    write_confluent,
    write_kafka_python,
)
from .served import PATIENCE, Served


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_idempotent_with_each_codec_is_read_as_written(served: Served, codec: str) -> None:
    topic = f"codec-{codec}"
    settings = {"compression.type": codec, "enable.idempotence": True}
    assert write_confluent(served.address, topic, **settings) == [0, 1, 2]
    assert read_confluent(served.address, topic, 3) == WRITTEN


@pytest.mark.parametrize("read", [read_confluent, read_kafka_python])
def test_kafka_python_written_by_it_is_read_by(served: Served, read: Callable[[str, str, int], list[Any]]) -> None:
    topic = f"kafka-python-{read.__name__}"
    assert write_kafka_python(served.address, topic) == [0, 1, 2]
    assert read(served.address, topic, 3) == WRITTEN


async def test_aiokafka_written_by_it_is_read_by_it(served: Served) -> None:
    assert await write_aiokafka(served.address, "aiokafka") == [0, 1, 2]
    assert await read_aiokafka(served.address, "aiokafka", 3) == WRITTEN


async def test_aiokafka_and_confluent_read_each_other(served: Served) -> None:
    write_confluent(served.address, "both")
    await write_aiokafka(served.address, "both")
    assert await read_aiokafka(served.address, "both", 6) == WRITTEN * 2
    assert read_confluent(served.address, "both", 6) == WRITTEN * 2


def test_produce_without_acks_is_read(served: Served) -> None:
    write_confluent(served.address, "no-acks", acks=0)
    assert read_confluent(served.address, "no-acks", 3) == WRITTEN


def test_begin_of_a_transaction_is_refused_at_once(served: Served) -> None:
    start = time.monotonic()
    assert "transactional" in begin_confluent(served.address).lower()
    assert time.monotonic() - start < PATIENCE / 2
