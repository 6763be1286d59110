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

from . import admin, configs, listing, members, records, topics
from .answers import Key
from .catalog import Catalog
from .connections import Answered, Connections
from .errors import KafkaError
from .fetches import DelayedFetch, Fetched
from .groups import Group, GroupSettings
from .kept import Budget
from .replication import Partition, Settings
from .wire import Request

#: The most characters in the name of a group. Kafka has no bound but that of strings.
_LONGEST_GROUP: Final = 255

Handler = Callable[["Broker", Request], Answered]

HANDLERS: Final[Mapping[str, Handler]] = {
    "api_versions": topics.api_versions,
    "create_partitions": admin.create_partitions,
    "create_topics": admin.create_topics,
    "delete_groups": listing.delete_groups,
    "delete_records": admin.delete_records,
    "delete_topics": admin.delete_topics,
    "describe_configs": configs.describe_configs,
    "describe_groups": listing.describe_groups,
    "elect_leaders": admin.elect_leaders,
    "fetch": records.fetch,
    "find_coordinator": topics.find_coordinator,
    "heartbeat": members.heartbeat,
    "init_producer_id": records.init_producer_id,
    "join_group": members.join_group,
    "leave_group": members.leave_group,
    "list_groups": listing.list_groups,
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
    #: The most bytes of a request, and of all requests above 64 KiB that are being read.
    max_request: int = 100 << 20
    max_reading: int = 256 << 20
    #: The most bytes of records in an answer, and of all answers that clients have not read.
    max_answer: int = 55 << 20
    max_unread: int = 256 << 20
    #: The most bytes that are kept for all groups: members, plans, offsets.
    max_kept: int = 64 << 20
    partition: Settings = field(default_factory=Settings)
    group: GroupSettings = field(default_factory=GroupSettings)


class Broker:
    """A broker with its topics and groups in memory.

    Args:
        settings: None (default): ``BrokerSettings()``.
        observers: of its five purgatories.
    """

    def __init__(self, settings: BrokerSettings | None = None, observers: Iterable[Observer] = ()) -> None:
        self.settings = settings or BrokerSettings()
        self.fetches, self.acks, self.rebalances, self.admin, self.reads = self.purgatories = tuple(
            Purgatory(name, observers=observers) for name in ("fetch", "produce", "group", "admin", "read")
        )
        chosen = self.settings
        self.topics = Catalog(self.make_partition, chosen.partition, chosen.partitions, chosen.most_partitions)
        self.budget = Budget(chosen.max_kept)
        self.groups: dict[str, Group] = {}
        # A producer that outlives a broker keeps its id, which the next broker must not give to another one.
        self.producer_ids = itertools.count(secrets.randbits(62))
        self.connections = Connections(
            self.reads,
            lambda request: HANDLERS[request.api](self, request),
            max_request=chosen.max_request,
            max_reading=chosen.max_reading,
            max_unread=chosen.max_unread,
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
        self.admin.expire_all()
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

    def make_partition(self, topic: str, number: int, settings: Settings) -> Partition:
        return Partition(self.fetches, self.acks, self.admin, topic, number, settings)

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
            self.groups[name] = Group(self.rebalances, name, self.settings.group, self.budget)
        return self.groups[name]
