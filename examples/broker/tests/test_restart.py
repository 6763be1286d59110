"""Producers that outlive a broker: its log is gone, and no record that it acks later may be lost."""

from __future__ import annotations

import confluent_kafka
from private_servers import free_port

from .asks import fetch, values_in
from .served import PATIENCE, Served
from .wires import Wire


class Idempotent:
    """A producer of librdkafka that notes the offset of each record."""

    def __init__(self, address: str) -> None:
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        self._producer = confluent_kafka.Producer(settings | {"reconnect.backoff.max.ms": 200})

    def send(self, value: bytes) -> int:
        """Send a record to partition 0. Returns: its offset."""
        offsets: list[int] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offsets.append(message.offset() or 0)

        self._producer.produce("t", value, partition=0, on_delivery=delivered)
        assert self._producer.flush(PATIENCE) == 0
        return offsets[0]


async def test_records_acked_after_a_restart_are_all_in_the_log() -> None:
    port = free_port()
    with Served("--port", str(port)) as first:
        survivor = Idempotent(first.address)
        assert survivor.send(b"A0") == 0
    with Served("--port", str(port)) as second:
        newcomer = Idempotent(second.address)
        assert newcomer.send(b"B0") == 0
        assert [survivor.send(b"A1"), newcomer.send(b"B1"), survivor.send(b"A2")] == [1, 2, 3]
        async with await Wire.open(port) as wire:
            assert values_in((await fetch(wire, "t", 0, wait=0.0)).records) == [b"B0", b"A1", b"B1", b"A2"]
