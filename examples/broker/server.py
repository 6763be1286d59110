"""The broker: its topics, its groups, and the handler of each request."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from aiopurgatory import Observer, Purgatory
from aiopurgatory.operations import Replicas, produce

from . import members, records, topics
from .answers import Key
from .connections import Answered, Connections
from .errors import KafkaError
from .fetches import DelayedFetch, Fetched
from .groups import Group, GroupSettings
from .replication import Partition, Settings
from .wire import Request

#: The most characters in the name of a group. Kafka bounds only its strings.
_LONGEST_GROUP: Final = 255

Handler = Callable[["Broker", Request], Answered]

HANDLERS: Final[Mapping[str, Handler]] = {
    "api_versions": topics.api_versions,
    "create_topics": topics.create_topics,
    "delete_topics": topics.delete_topics,
    "fetch": records.fetch,
    "find_coordinator": topics.find_coordinator,
    "heartbeat": members.heartbeat,
    "init_producer_id": records.init_producer_id,
    "join_group": members.join_group,
    "leave_group": members.leave_group,
    "list_offsets": records.list_offsets,
    "metadata": topics.metadata,
    "offset_commit": members.offset_commit,
    "offset_fetch": members.offset_fetch,
    "produce": records.produce,
    "sync_group": members.sync_group,
}


@dataclass
class BrokerSettings:
    """The settings of a broker."""

    #: Partitions of a topic that is created automatically.
    partitions: int = 2
    #: The most partitions of all topics together, and the most groups.
    most_partitions: int = 1_000
    most_groups: int = 10_000
    #: The most bytes of a request, and of the records in an answer.
    max_request: int = 16 << 20
    max_answer: int = 16 << 20
    partition: Settings = field(default_factory=Settings)
    group: GroupSettings = field(default_factory=GroupSettings)


class Broker:
    """A broker with its topics and groups in memory.

    Args:
        settings: None (default): ``BrokerSettings()``.
        observers: of its three purgatories.
    """

    def __init__(self, settings: BrokerSettings | None = None, observers: Iterable[Observer] = ()) -> None:
        self.settings = settings or BrokerSettings()
        self.fetches, self.acks, self.rebalances = self.purgatories = tuple(
            Purgatory(name, observers=observers) for name in ("fetch", "produce", "group")
        )
        self.topics = topics.Topics(self.make_partition, self.settings.partitions, self.settings.most_partitions)
        self.groups: dict[str, Group] = {}
        # A producer that outlives a broker keeps its id, which the next broker must not give to another one.
        self.producer_ids = itertools.count(secrets.randbits(62))
        self.connections = Connections(
            self.fetches, lambda request: HANDLERS[request.api](self, request), max_request=self.settings.max_request
        )

    @property
    def host(self) -> str:
        return self.connections.host

    @property
    def port(self) -> int:
        return self.connections.port

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises: OSError: the port is taken."""
        for purgatory in self.purgatories:
            await purgatory.start()
        await self.connections.listen(host, port)

    async def close(self) -> None:
        """Accept no more connections, answer every waiting request, and stop."""
        self.connections.stop_listening()
        self.fetches.expire_all()  # fetches return the records there are
        for partition in itertools.chain.from_iterable(self.topics.values()):
            partition.excuse_followers()  # dropping them now would ack records that they lack
        self.acks.expire_all()  # the records may be lost, so producers must send them again
        for group in self.groups.values():
            group.close()
        await self.connections.drain()
        for topic in list(self.topics):
            self.topics.remove(topic)
        for purgatory in self.purgatories:
            await purgatory.aclose()

    # waits

    async def acked(
        self, required: Mapping[Key, tuple[Replicas[int], int] | Exception], timeout: float
    ) -> dict[Key, Exception | None]:
        """Wait until all in-sync replicas have the *required* offsets. Returns: the error of each partition."""
        return await produce(self.acks, required, timeout=timeout)

    def read(self, fetched: Fetched, min_bytes: int, timeout: float) -> Awaitable[Fetched]:
        """Wait until *min_bytes* can be read."""
        keys = [("committed", topic, number) for topic, number in fetched.partitions]
        return self.fetches.watch(DelayedFetch(fetched, min_bytes, timeout), keys)

    # topics

    def make_partition(self, topic: str, number: int) -> Partition:
        return Partition(self.fetches, self.acks, topic, number, self.settings.partition)

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition. Raises: KafkaError: it does not exist."""
        return self.topics.partition(topic, number)

    # groups

    def group(self, name: str, *, makes: bool = False) -> Group:
        """Return a group; *makes*: create it if needed. Raises: KafkaError: it does not exist, or cannot be created."""
        if name not in self.groups:
            if not makes:
                raise KafkaError(ErrorCode.unknown_member_id)
            if not 1 <= len(name) <= _LONGEST_GROUP:
                raise KafkaError(ErrorCode.invalid_group_id)
            if len(self.groups) >= self.settings.most_groups:
                self.groups = {name: group for name, group in self.groups.items() if not group.is_unused}
            if len(self.groups) >= self.settings.most_groups:
                raise KafkaError(ErrorCode.policy_violation)
            self.groups[name] = Group(self.rebalances, name, self.settings.group)
        return self.groups[name]
