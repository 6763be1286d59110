"""Stands in for test/integration/fixtures.py of kafka-python, which starts a Kafka: here, a broker is there already.

test_kafka_python_suite.py copies it to that place. It is imported there, not from here.
"""

from __future__ import annotations

import os
from typing import Any

from kafka import KafkaAdminClient

PARTITIONS = 4
# kafka-python 3.0 loses a subscription that is made while it asks for metadata: it does not ask for the new topic's
# before it asks again, after 5 minutes unless told otherwise. With a broker as fast as this one that comes about.
METADATA_AGE_MS = 1_000


class KafkaFixture:
    """The broker that KAFKA_URI names."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    def instance(cls, number: int, *, host: str, port: int, external: bool) -> KafkaFixture:
        return cls(f"{host}:{port}")


class ZookeeperFixture:
    """Is imported, and not used."""


def client_params(broker: KafkaFixture, client_id: str = "client", **settings: Any) -> dict[str, Any]:
    """The settings of a client."""
    if os.environ["KAFKA_NEGOTIATES"]:  # the client asks the broker which versions it speaks, as clients do by default
        settings.pop("api_version", None)
    own = {"bootstrap_servers": broker.address, "client_id": client_id, "metadata_max_age_ms": METADATA_AGE_MS}
    return own | settings


def create_topics(broker: KafkaFixture, names: list[str]) -> None:
    with KafkaAdminClient(**client_params(broker)) as admin:
        topics = {name: {"num_partitions": PARTITIONS, "replication_factor": 1} for name in names}
        admin.create_topics(topics, wait_for_metadata=True)
