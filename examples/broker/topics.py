"""Handlers for requests about topics and about the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from .answers import OK, Values, code_of_step
from .replication import FOLLOWERS, LEADER
from .wire import KEYS, VERSIONS, Request

if TYPE_CHECKING:
    from .server import Broker


def api_versions(broker: Broker, request: Request) -> Values:
    code = ErrorCode.unsupported_version if request.is_unknown_version else OK
    spoken = sorted((KEYS[name], *versions) for name, versions in VERSIONS.items())
    names = ("api_key", "min_version", "max_version")
    return Values(error_code=code, api_keys=[Values(**dict(zip(names, each, strict=True))) for each in spoken])


def metadata(broker: Broker, request: Request) -> Values:
    body = request.body
    wants_all = body.topics is None or (request.version == 0 and not body.topics)
    names = list(broker.topics) if wants_all else [topic.name for topic in body.topics or ()]
    makes = getattr(body, "allow_auto_topic_creation", True)
    return Values(
        brokers=[Values(node_id=LEADER, host=broker.host, port=broker.port)],
        cluster_id="aiopurgatory",
        controller_id=LEADER,
        topics=[_described(broker, name, makes=makes) for name in names],
    )


def _described(broker: Broker, name: str, *, makes: bool) -> Values:
    code = OK
    if name not in broker.topics:
        code = code_of_step(broker.make_topic, name) if makes else ErrorCode.unknown_topic_or_partition
    parts = [
        Values(
            error_code=OK,
            partition_index=partition.number,
            leader_id=LEADER,
            leader_epoch=0,
            replica_nodes=(LEADER, *FOLLOWERS),
            isr_nodes=tuple(partition.replicas.in_sync),
        )
        for partition in broker.topics.get(name, ())
    ]
    return Values(error_code=code, name=name, partitions=parts)


def create_topics(broker: Broker, request: Request) -> Values:
    answers = []
    for topic in request.body.topics:
        count = len(topic.assignments) or topic.num_partitions
        step = broker.check_topic if request.body.validate_only else broker.make_topic
        code = code_of_step(step, topic.name, count)
        answers.append(
            Values(
                name=topic.name,
                error_code=code,
                error_message=None if code == OK else code.name,
                num_partitions=count,
                replication_factor=1 + len(FOLLOWERS),
            )
        )
    return Values(topics=answers)


def delete_topics(broker: Broker, request: Request) -> Values:
    names = request.body.topic_names
    return Values(responses=[Values(name=name, error_code=code_of_step(broker.remove_topic, name)) for name in names])


def find_coordinator(broker: Broker, request: Request) -> Values:
    if getattr(request.body, "key_type", 0):  # no transactions: clients do not retry this error
        return Values(error_code=ErrorCode.transactional_id_authorization_failed, node_id=-1, host="", port=-1)
    return Values(error_code=OK, node_id=LEADER, host=broker.host, port=broker.port)
