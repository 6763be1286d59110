"""The values of answers by name. Each version of an answer takes the names that it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from .errors import KafkaError

#: The name of a topic and the number of a partition.
Key = tuple[str, int]

OK: Final = ErrorCode.none
_UNKNOWN: Final = -1 << 31


class _Unset:
    """Equals the default of any optional field, so that kio leaves the field out."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class Values:
    """The values of an answer, or of a part of it. Values that are the same in all answers are the class's."""

    throttle_time: ClassVar = timedelta()
    error_message: ClassVar = None
    # produce, fetch and list_offsets
    log_append_time: ClassVar = None
    log_start_offset: ClassVar = -1
    record_errors: ClassVar = ()
    aborted_transactions: ClassVar = None
    preferred_read_replica: ClassVar = -1
    leader_epoch: ClassVar = -1
    diverging_epoch: ClassVar = _Unset()
    current_leader: ClassVar = _Unset()
    snapshot_id: ClassVar = _Unset()
    # metadata, create_topics
    rack: ClassVar = None
    is_internal: ClassVar = False
    offline_replicas: ClassVar = ()
    cluster_authorized_operations: ClassVar = _UNKNOWN
    topic_authorized_operations: ClassVar = _UNKNOWN
    topic_config_error_code: ClassVar = 0
    num_partitions: ClassVar = -1
    replication_factor: ClassVar = -1
    configs: ClassVar = ()
    # groups
    group_instance_id: ClassVar = None
    skip_assignment: ClassVar = False
    protocol_type: ClassVar = None
    protocol_name: ClassVar = None
    committed_leader_epoch: ClassVar = -1
    # api_versions
    supported_features: ClassVar = ()
    finalized_features_epoch: ClassVar = -1
    finalized_features: ClassVar = ()
    zk_migration_ready: ClassVar = False

    topic: Any
    topic_id: Any

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def by_topic(answers: Mapping[Key, Values], name: str = "name", parts: str = "partitions") -> list[Values]:
    """Group the answers by topic. *name* and *parts* are a topic's field names for its name and its partitions."""
    topics = defaultdict(list)
    for (topic, _), values in answers.items():
        topics[topic].append(values)
    return [Values(**{name: topic, parts: values}) for topic, values in topics.items()]


def partitions(topics: Iterable[Any], name: str = "name", parts: str = "partitions") -> Iterator[tuple[str, Any]]:
    """Yield each partition of a request, with the name of its topic."""
    for topic in topics:
        for part in getattr(topic, parts):
            yield getattr(topic, name), part


def code_of_step(step: Callable[..., object], *args: object) -> ErrorCode:
    """Call *step*. Returns: the code of the KafkaError that it raises, or none."""
    try:
        step(*args)
    except KafkaError as error:
        return error.code
    return OK
