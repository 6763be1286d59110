"""The topics of a broker, and the handlers for requests about topics and about the broker itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from kio.schema.errors import ErrorCode

from .answers import OK, Values, code_of_step
from .errors import KafkaError
from .replication import LEADER, Partition
from .wire import KEYS, VERSIONS, Request

if TYPE_CHECKING:
    from .server import Broker

_LONGEST_NAME: Final = 249
# The first version of Metadata that may ask for a topic by its id alone. Older ones have the field.
_ASKS_BY_ID: Final = 12


class Topic(list[Partition]):
    """The partitions of a topic."""

    def __init__(self) -> None:
        super().__init__()
        self.id = uuid4()


class Topics(Mapping[str, Topic]):
    """All topics by name.

    Args:
        make_partition: creates a partition of a topic.
        partitions: of a topic that is created without a number.
        most_partitions: of all topics together.
    """

    def __init__(self, make_partition: Callable[[str, int], Partition], partitions: int, most_partitions: int) -> None:
        self._make_partition = make_partition
        self._partitions = partitions
        self._most_partitions = most_partitions
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}  # by id

    def __getitem__(self, name: str) -> Topic:
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    def check(self, name: str, count: int = -1) -> int:
        """Check a topic to create, of *count* partitions; -1: the broker's default. Returns: the number.

        Raises: KafkaError: it exists, or its name or number is not allowed.
        """
        if name in self._topics:
            raise KafkaError(ErrorCode.topic_already_exists)
        is_plain = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)
        if not is_plain or not 1 <= len(name) <= _LONGEST_NAME or name in (".", ".."):
            raise KafkaError(ErrorCode.invalid_topic_exception)
        count = self._partitions if count == -1 else count
        if not 1 <= count <= self._most_partitions - sum(map(len, self._topics.values())):
            raise KafkaError(ErrorCode.invalid_partitions)
        return count

    def make(self, name: str, count: int = -1) -> Topic:
        """Create a topic. Raises: KafkaError: as for check()."""
        count = self.check(name, count)
        topic = self._topics[name] = Topic()
        self._names[topic.id] = name
        topic += [self._make_partition(name, number) for number in range(count)]
        return topic

    def remove(self, name: str) -> None:
        """Remove a topic, and fail every wait for it. Raises: KafkaError: it does not exist."""
        topic = self.topic(name)
        for partition in topic:
            partition.remove()
        del self._topics[name], self._names[topic.id]

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
        code = code_of_step(broker.topics.make, name) if makes else ErrorCode.unknown_topic_or_partition
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


def create_topics(broker: Broker, request: Request) -> Values:
    """Create topics, without configs or replicas of their own. As in Kafka, a name that comes twice is refused."""
    body = request.body
    times = Counter(each.name for each in body.topics)

    def create(wanted: Any) -> None:
        if times[wanted.name] > 1:
            raise KafkaError(ErrorCode.invalid_request)
        if wanted.replication_factor not in (-1, 1) or wanted.assignments:
            raise KafkaError(ErrorCode.invalid_replication_factor)
        if wanted.configs:
            raise KafkaError(ErrorCode.invalid_config)
        step = broker.topics.check if body.validate_only else broker.topics.make
        step(wanted.name, wanted.num_partitions)

    codes = {each.name: code_of_step(create, each) for each in body.topics}
    topics = [
        Values(name=name, error_code=code, topic_id=getattr(broker.topics.get(name), "id", None))
        for name, code in codes.items()
    ]
    return Values(topics=topics)


def delete_topics(broker: Broker, request: Request) -> Values:
    codes = {name: code_of_step(broker.topics.remove, name) for name in dict.fromkeys(request.body.topic_names)}
    return Values(responses=[Values(name=name, error_code=code) for name, code in codes.items()])


def find_coordinator(broker: Broker, request: Request) -> Values:
    body = request.body
    if getattr(body, "key_type", 0):  # no transactions: clients do not retry this error
        found = {"error_code": ErrorCode.transactional_id_authorization_failed, "node_id": -1, "host": "", "port": -1}
    else:
        found = {"error_code": OK, "node_id": LEADER, "host": broker.host, "port": broker.port}
    return Values(coordinators=[Values(key=key, **found) for key in getattr(body, "coordinator_keys", ())], **found)
