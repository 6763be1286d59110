"""Handlers for requests about topics and about the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from .answers import OK, Values, code_of_step
from .replication import LEADER
from .wire import KEYS, VERSIONS, Request

if TYPE_CHECKING:
    from .server import Broker

# The first version of Metadata that may ask for a topic by its id alone. Older ones have the field.
_ASKS_BY_ID: Final = 12


def api_versions(broker: Broker, request: Request) -> Values:
    code = ErrorCode.unsupported_version if request.is_unknown_version else OK
    spoken = sorted((KEYS[name], *versions) for name, versions in VERSIONS.items())
    names = ("api_key", "min_version", "max_version")
    return Values(error_code=code, api_keys=[Values(**dict(zip(names, each, strict=True))) for each in spoken])


def metadata(broker: Broker, request: Request) -> Values:
    body = request.body
    wants_all = body.topics is None or (request.version == 0 and not body.topics)
    wanted: list[tuple[str | None, UUID | None]] = [(name, None) for name in broker.topics]
    if not wants_all:
        wanted = [(topic.name, getattr(topic, "topic_id", None)) for topic in body.topics or ()]
        if request.version < _ASKS_BY_ID:  # its answer has a name for each topic
            wanted = [(name or "", None) for name, _ in wanted]
    makes = getattr(body, "allow_auto_topic_creation", True)
    return Values(
        brokers=[Values(node_id=LEADER, host=broker.host, port=broker.port)],
        cluster_id="aiopurgatory",
        controller_id=LEADER,
        # Each once, as in Kafka: its answer may be long.
        topics=[_described(broker, name, topic_id, makes=makes) for name, topic_id in dict.fromkeys(wanted)],
    )


def _described(broker: Broker, name: str | None, topic_id: UUID | None, *, makes: bool) -> Values:
    code = OK
    if name is None:
        name = broker.topics.name_of(topic_id)
    if name is None:
        return Values(error_code=ErrorCode.unknown_topic_id, name=None, topic_id=topic_id, partitions=())
    if name not in broker.topics:
        code = code_of_step(_make, broker, name) if makes else ErrorCode.unknown_topic_or_partition
    parts = [
        Values(
            error_code=OK,
            partition_index=partition.number,
            leader_id=LEADER,
            leader_epoch=0,
            replica_nodes=(LEADER,),  # followers are no nodes: a client would look for their addresses
            isr_nodes=(LEADER,),
        )
        for partition in broker.topics.get(name, ())
    ]
    topic_id = broker.topics[name].id if name in broker.topics else None
    return Values(error_code=code, name=name, topic_id=topic_id, partitions=parts)


def _make(broker: Broker, name: str) -> None:
    broker.topics.make(broker.topics.plan(name))


def find_coordinator(broker: Broker, request: Request) -> Values:
    body = request.body
    if getattr(body, "key_type", 0):  # no transactions: clients do not retry this error
        found = {"error_code": ErrorCode.transactional_id_authorization_failed, "node_id": -1, "host": "", "port": -1}
    else:
        found = {"error_code": OK, "node_id": LEADER, "host": broker.host, "port": broker.port}
    return Values(coordinators=[Values(key=key, **found) for key in getattr(body, "coordinator_keys", ())], **found)
