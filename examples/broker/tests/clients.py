"""The three clients, each writing and reading the same records."""

from __future__ import annotations

import warnings
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from .served import PATIENCE

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # how it reads its schemas is deprecated
    import kafka

KEYS = [b"a", None, b"\x00\xff"]
VALUES = [b"one", b"", bytes(range(256)) * 40]
HEADERS: list[Any] = [("trace", b"\x01"), ("empty", b"")]
WRITTEN = [(key, value, HEADERS) for key, value in zip(KEYS, VALUES, strict=True)]


def write_confluent(address: str, topic: str, **settings: Any) -> list[int]:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 20} | settings)
    for key, value, headers in WRITTEN:
        producer.produce(topic, value, key, 0, on_delivery=delivered, headers=headers)
    assert producer.flush(PATIENCE) == 0
    return offsets


def read_confluent(address: str, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = consumer.consume(count, PATIENCE)
    consumer.close()
    assert [message.error() for message in found] == [None] * count
    return [(message.key(), message.value(), message.headers()) for message in found]


def write_kafka_python(address: str, topic: str) -> list[int]:
    producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
    sent = [producer.send(topic, value, key, headers, 0) for key, value, headers in WRITTEN]
    offsets = [each.get(PATIENCE).offset for each in sent]
    producer.close(PATIENCE)
    return offsets


def read_kafka_python(address: str, topic: str, count: int) -> list[Any]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=PATIENCE * 1000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return [(message.key, message.value, message.headers) for message in found]


async def write_aiokafka(address: str, topic: str) -> list[int]:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:
        sent = [await producer.send(topic, value, key, 0, headers=headers) for key, value, headers in WRITTEN]
        return [(await each).offset for each in sent]


async def read_aiokafka(address: str, topic: str, count: int) -> list[Any]:
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        found = [await consumer.getone() for _ in range(count)]
        return [(message.key, message.value, list(message.headers)) for message in found]


def begin_confluent(address: str) -> str:
    """The error with which a producer's first transaction ends."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "confluent"})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(PATIENCE)
    return str(refused.value)
