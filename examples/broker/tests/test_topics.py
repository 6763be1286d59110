"""Topics are created by asking for them or by name, described, and deleted with every wait for them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from ..server import Broker, BrokerSettings
from .asks import batch, create, fetch_values, produce, values_in
from .conftest import Start
from .wires import Wire

NEW: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}


async def codes_of(wire: Wire, *topics: dict[str, Any], **values: Any) -> list[ErrorCode]:
    answer = await wire.call("create_topics", topics=[NEW | topic for topic in topics], **values)
    return [each.error_code for each in answer.topics]


async def test_topic_that_is_asked_for_is_created(broker: Broker, wire: Wire) -> None:
    named: dict[str, Any] = {"topics": [{"name": "t"}]}
    (refused,) = (await wire.call("metadata", allow_auto_topic_creation=False, **named)).topics
    assert (refused.error_code, dict(broker.topics)) == (ErrorCode.unknown_topic_or_partition, {})
    (made,) = (await wire.call("metadata", allow_auto_topic_creation=True, **named)).topics
    assert (made.error_code, len(made.partitions)) == (ErrorCode.none, broker.settings.partitions)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "t"}, ErrorCode.topic_already_exists),
        ({"name": "a b"}, ErrorCode.invalid_topic_exception),
        ({"name": ".."}, ErrorCode.invalid_topic_exception),
        ({"name": "n" * 250}, ErrorCode.invalid_topic_exception),
        ({"name": "new", "num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"name": "new", "num_partitions": 10}, ErrorCode.invalid_partitions),
        ({"name": "new", "replication_factor": 3}, ErrorCode.invalid_replication_factor),
        ({"name": "new", "configs": [{"name": "retention.ms", "value": "1"}]}, ErrorCode.invalid_config),
    ],
)
async def test_topic_with_bad_settings_is_refused_alone(start: Start, topic: dict[str, Any], code: ErrorCode) -> None:
    broker = await start(BrokerSettings(most_partitions=10))
    async with await Wire.open(broker.port) as wire:
        await create(wire, "t")
        assert await codes_of(wire, topic, {"name": "good"}) == [code, ErrorCode.none]
        assert list(broker.topics) == ["t", "good"]


async def test_topic_that_is_only_checked_or_named_twice_is_not_there(wire: Wire, broker: Broker) -> None:
    assert await codes_of(wire, {"name": "t"}, validate_only=True) == [ErrorCode.none]
    assert await codes_of(wire, {"name": "t"}, {"name": "t"}) == [ErrorCode.invalid_request]
    assert not broker.topics


@pytest.mark.parametrize("version", [8, 9, 12])
async def test_metadata_names_no_replica_without_its_broker(wire: Wire, version: int) -> None:
    await create(wire, "t", 3)
    answer = await wire.call("metadata", version=version, topics=None)
    nodes = {each.node_id for each in answer.brokers}
    parts = answer.topics[0].partitions
    assert len(parts) == 3
    assert {node for part in parts for node in (part.leader_id, *part.replica_nodes, *part.isr_nodes)} == nodes


async def test_metadata_by_id_and_fetch_by_id(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    await produce(wire, "t", batch(b"x"))
    topic_id = broker.topics["t"].id
    ids = [{"topic_id": topic_id, "name": None}, {"topic_id": uuid4(), "name": None}]
    found = (await wire.call("metadata", version=12, topics=ids)).topics
    assert [(each.name, each.error_code) for each in found] == [
        ("t", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]
    values = fetch_values("t", 0, wait=0.0)
    parts = values.pop("topics")[0]["partitions"]
    topics = [each | {"partitions": parts} for each in ids]
    known, unknown = (await wire.call("fetch", version=13, topics=topics, **values)).responses
    assert (known.topic_id, values_in(known.partitions[0].records)) == (topic_id, [b"x"])
    assert unknown.partitions[0].error_code == ErrorCode.unknown_topic_id


async def test_delete_of_an_unknown_topic_is_refused_alone(wire: Wire, broker: Broker) -> None:
    await create(wire, "t")
    answer = await wire.call("delete_topics", topic_names=["nothing", "t"])
    assert {each.name: each.error_code for each in answer.responses} == {
        "nothing": ErrorCode.unknown_topic_or_partition,
        "t": ErrorCode.none,
    }
    assert not broker.topics
