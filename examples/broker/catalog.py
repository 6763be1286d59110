"""The topics of a broker: rules for a new one, and its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid4

from kio.schema.errors import ErrorCode

from .configs import check_configs
from .errors import KafkaError
from .replication import LEADER, Partition, Settings

_LONGEST_NAME: Final = 249
#: Each topic's replication factor: followers are no nodes that a client may know.
REPLICATION_FACTOR: Final = 1

MakePartition = Callable[[str, int, Settings], Partition]


@dataclass(frozen=True)
class Plan:
    """A topic to create. Args: count: its partitions."""

    name: str
    count: int
    configs: Mapping[str, str] = field(default_factory=dict)


class Topic(list[Partition]):
    """The partitions of a topic. Args: configs: those that it was created with."""

    def __init__(self, name: str, configs: Mapping[str, str]) -> None:
        super().__init__()
        self.name = name
        self.id = uuid4()
        self.configs = dict(configs)

    def created(self) -> ErrorCode | None:
        """The answer to its creation: once every follower knows every partition, or it is deleted meanwhile."""
        if any(partition.is_gone for partition in self):
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none if all(partition.is_known for partition in self) else None

    def removed(self) -> ErrorCode | None:
        """The answer to its deletion: once every follower has stopped."""
        return ErrorCode.none if all(partition.is_stopped for partition in self) else None


class Catalog(Mapping[str, Topic]):
    """All topics by name.

    Args:
        make_partition: creates a partition of a topic, with its settings.
        settings: of partitions, if their topic has no configs of its own.
        partitions: of a topic that is created without a number.
        most_partitions: of all topics together.
    """

    def __init__(
        self, make_partition: MakePartition, settings: Settings, partitions: int, most_partitions: int
    ) -> None:
        self.settings = settings
        self.partitions = partitions
        self._make_partition = make_partition
        self._most_partitions = most_partitions
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}  # by id

    def __getitem__(self, name: str) -> Topic:
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    def plan(
        self,
        name: str,
        count: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, tuple[int, ...]] | None = None,
        configs: Mapping[str, str | None] | None = None,
    ) -> Plan:
        """Check a topic to create. -1 and None mean the broker's default.

        Args: assignments: the replicas of each partition, in place of both numbers.
        Raises: KafkaError: it exists, or something about it is not allowed.
        """
        if name in self._topics:
            raise KafkaError(ErrorCode.topic_already_exists)
        is_plain = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)
        if not is_plain or not 1 <= len(name) <= _LONGEST_NAME or name in (".", ".."):
            raise KafkaError(ErrorCode.invalid_topic_exception)
        if assignments:
            if (count, replication_factor) != (-1, -1):
                raise KafkaError(ErrorCode.invalid_request)
            if set(assignments) != set(range(len(assignments))) or set(assignments.values()) != {(LEADER,)}:
                raise KafkaError(ErrorCode.invalid_replica_assignment)
            count = len(assignments)
        if replication_factor not in (-1, REPLICATION_FACTOR):
            raise KafkaError(ErrorCode.invalid_replication_factor)
        count = self.partitions if count == -1 else count
        self._check_room(count)
        return Plan(name, count, check_configs(configs or {}))

    def make(self, plan: Plan) -> Topic:
        """Create a topic."""
        topic = self._topics[plan.name] = Topic(plan.name, plan.configs)
        self._names[topic.id] = plan.name
        self._add(topic, plan.count)
        return topic

    def grow(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        """Add partitions to a topic, up to *count*. Raises: KafkaError: it does not exist, or has as many."""
        topic = self.topic(name)
        self._check_room(count - len(topic))
        if not validate_only:
            self._add(topic, count)
        return topic

    def remove(self, name: str) -> Topic:
        """Remove a topic, and fail every wait for it. Raises: KafkaError: it does not exist."""
        topic = self.topic(name)
        for partition in topic:
            partition.remove()
        del self._topics[name], self._names[topic.id]
        return topic

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises: KafkaError: it does not exist."""
        if name not in self._topics:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self._topics[name]

    def name_of(self, topic_id: UUID | None) -> str | None:
        """Return the name of a topic, or None if there is none with this id."""
        return None if topic_id is None else self._names.get(topic_id)

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition. Raises: KafkaError: it does not exist."""
        found = self.topic(topic)
        if not 0 <= number < len(found):
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return found[number]

    def _check_room(self, more: int) -> None:
        if not 1 <= more <= self._most_partitions - sum(map(len, self._topics.values())):
            raise KafkaError(ErrorCode.invalid_partitions)

    def _add(self, topic: Topic, count: int) -> None:
        own = topic.configs
        settings = replace(
            self.settings,
            max_bytes=int(own.get("retention.bytes", self.settings.max_bytes)),
            max_batch=int(own.get("max.message.bytes", self.settings.max_batch)),
            min_in_sync=int(own.get("min.insync.replicas", self.settings.min_in_sync)),
        )
        topic += [self._make_partition(topic.name, number, settings) for number in range(len(topic), count)]
