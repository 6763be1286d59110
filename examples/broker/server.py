"""The broker: what each request asks of topics and groups, and the answer to it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from aiopurgatory import Observer, Purgatory
from aiopurgatory.operations import DelayedFetch, SourceError, produce

from .connections import Connections
from .errors import KafkaError, code_of
from .groups import Group, GroupSettings, Member
from .replication import FOLLOWERS, LEADER, Partition, Read, Settings, View
from .wire import KEYS, VERSIONS, Request

Values = dict[str, Any]

_NO_TIME: Final = timedelta()
_OK: Final = ErrorCode.none
# The positions that a client may ask for in place of a timestamp.
_LATEST: Final = -1
_EARLIEST: Final = -2
_LONGEST_NAME: Final = 249
# The first version in which a member without a name is given one, and joins with that.
_NAMES_FIRST: Final = 4


@dataclass
class BrokerSettings:
    """What may be set. Times are in seconds."""

    #: Of a topic that comes into being because it is asked for.
    partitions: int = 2
    most_partitions: int = 1_000
    #: The largest request, and what all of the requests of one connection may take.
    max_request: int = 4 << 20
    partition: Settings = field(default_factory=Settings)
    group: GroupSettings = field(default_factory=GroupSettings)


class Broker:
    """Topics and groups, in memory, until it is closed.

    Args: observers: of all three purgatories.
    """

    #: How a topic's partitions are made.
    make_partition = Partition

    def __init__(self, settings: BrokerSettings | None = None, observers: Iterable[Observer] = ()) -> None:
        self.settings = settings or BrokerSettings()
        names = ("fetch", "produce", "group")
        self.fetches, self.acks, self.rebalances = (Purgatory(name, observers=observers) for name in names)
        self.topics: dict[str, list[Partition]] = {}
        self.groups: dict[str, Group] = {}
        self.connections = Connections(self.answer, self.settings.max_request)
        self._producer_ids = itertools.count(1)
        self._handlers: dict[str, Callable[[Request], Values | Awaitable[Values | None]]] = {
            name: getattr(self, f"_{name}") for name in VERSIONS
        }

    @property
    def purgatories(self) -> tuple[Purgatory, Purgatory, Purgatory]:
        return self.fetches, self.acks, self.rebalances

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises: OSError: the port is taken."""
        for purgatory in self.purgatories:
            await purgatory.start()
        await self.connections.listen(host, port)

    async def close(self) -> None:
        """Take no more connections, answer every request that waits, and stop."""
        self.connections.stop_listening()
        self.fetches.expire_all()  # with what there is
        self.acks.expire_all()  # the records may be safe, or not: a producer sends them again
        for group in self.groups.values():
            group.close()
        await self.connections.drain()
        for topic in list(self.topics):
            self._remove(topic)
        for purgatory in self.purgatories:
            await purgatory.aclose()

    async def answer(self, request: Request) -> Values | None:
        """The values of the answer; None: the client wants none."""
        found = self._handlers[request.api](request)
        values = found if isinstance(found, dict) else await found
        return None if values is None else {"throttle_time": _NO_TIME} | values

    # records

    async def _produce(self, request: Request) -> Values | None:
        body, required = request.body, dict[Any, Any]()
        if body.acks not in (-1, 0, 1):
            answers = {(t.name, p.index): (ErrorCode.invalid_required_acks, -1) for t, p in _parts(body.topic_data)}
            return self._produced(answers)
        bases: dict[Any, int] = {}
        for topic, part in _parts(body.topic_data):
            key = topic.name, part.index
            try:
                partition = self._partition(*key)
                bases[key], reach = partition.append(part.records, is_for_all=body.acks == -1)
                required[key] = partition.replicas, reach
            except KafkaError as error:
                required[key] = error
        errors = await self.acked(required, body.timeout.total_seconds(), body.acks) if required else {}
        if body.acks == 0:
            return None
        return self._produced({key: (code_of(error), bases.get(key, -1)) for key, error in errors.items()})

    async def acked(self, required: Mapping[Any, Any], timeout: float, acks: int) -> dict[Any, Exception | None]:
        """Wait until all of *required* is acked: as produce() of the library."""
        return await produce(self.acks, required, timeout=timeout, acks=acks)

    def _produced(self, answers: Mapping[tuple[str, int], tuple[ErrorCode, int]]) -> Values:
        topics = defaultdict(list)
        for (topic, number), (code, base) in answers.items():
            values = {"index": number, "error_code": code, "base_offset": base if code == _OK else -1}
            values |= {"log_append_time": None, "log_start_offset": -1, "record_errors": ()}
            topics[topic].append(values)
        return {"responses": [{"name": name, "partition_responses": parts} for name, parts in topics.items()]}

    async def _fetch(self, request: Request) -> Values:
        body = request.body
        if getattr(body, "session_id", 0):  # there are no sessions: the client asks again, for all of its partitions
            return {"error_code": ErrorCode.fetch_session_id_not_found, "session_id": 0, "responses": ()}
        views: dict[Any, tuple[Any, int]] = {}
        for topic, part in _parts(body.topics):
            views[topic.topic, part.partition] = self._view(topic.topic, part), part.fetch_offset
        found = await self.read(views, body.min_bytes, body.max_bytes, body.max_wait.total_seconds()) if views else {}
        topics = defaultdict(list)
        for (topic, number), read in found.items():
            topics[topic].append({"partition_index": number, **_read_values(read)})
        answers = [{"topic": name, "partitions": parts} for name, parts in topics.items()]
        return {"error_code": _OK, "session_id": 0, "responses": answers}

    async def read(
        self, views: Mapping[Any, tuple[Any, int]], min_bytes: int, max_bytes: int, timeout: float
    ) -> dict[Any, Read | SourceError]:
        """Wait until *views* together have *min_bytes* to read: as DelayedFetch of the library."""
        fetch = DelayedFetch(views, timeout=timeout, min_bytes=max(min_bytes, 0), max_bytes=max(max_bytes, 0))
        return await self.fetches.watch(fetch, [("committed", *key) for key in views])

    def _view(self, topic: str, part: Any) -> Any:
        try:
            return View(self._partition(topic, part.partition), "committed", max(part.partition_max_bytes, 0))
        except KafkaError as error:
            return _Nothing(error)

    def _list_offsets(self, request: Request) -> Values:
        topics = defaultdict(list)
        for topic, part in _parts(request.body.topics):
            values: Values = {"partition_index": part.partition_index, "error_code": _OK}
            try:
                found = _offset_at(self._partition(topic.name, part.partition_index), part.timestamp)
                values |= dict(zip(("offset", "timestamp"), found, strict=True))
            except KafkaError as error:
                values["error_code"] = error.code
            topics[topic.name].append({"offset": -1, "timestamp": -1, **values})
        return {"topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}

    def _init_producer_id(self, request: Request) -> Values:
        if request.body.transactional_id is not None:
            code = ErrorCode.transactional_id_authorization_failed  # final: there are no transactions here
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        return {"error_code": _OK, "producer_id": next(self._producer_ids), "producer_epoch": 0}

    # topics

    def _api_versions(self, request: Request) -> Values:
        code = ErrorCode.unsupported_version if request.is_unknown_version else _OK
        spoken = sorted((KEYS[name], *versions) for name, versions in VERSIONS.items())
        names = ("api_key", "min_version", "max_version")
        return {"error_code": code, "api_keys": [dict(zip(names, each, strict=True)) for each in spoken]}

    def _metadata(self, request: Request) -> Values:
        body = request.body
        wants_all = body.topics is None or (request.version == 0 and not body.topics)
        names = list(self.topics) if wants_all else [topic.name for topic in body.topics]
        makes = getattr(body, "allow_auto_topic_creation", True)
        return {
            "brokers": [{"node_id": LEADER, "host": self.connections.host, "port": self.connections.port, "rack": None}],
            "cluster_id": "aiopurgatory",
            "controller_id": LEADER,
            "topics": [self._described(name, makes=makes) for name in names],
        }

    def _described(self, name: str, *, makes: bool) -> Values:
        values: Values = {"error_code": _OK, "name": name, "is_internal": False, "partitions": ()}
        if name not in self.topics:
            code = self._make(name, self.settings.partitions) if makes else ErrorCode.unknown_topic_or_partition
            if code != _OK:
                return values | {"error_code": code}
        replicas = (LEADER, *FOLLOWERS)
        numbers = [
            {
                "error_code": _OK,
                "partition_index": partition.number,
                "leader_id": LEADER,
                "leader_epoch": 0,
                "replica_nodes": replicas,
                "isr_nodes": tuple(partition.replicas.in_sync),
                "offline_replicas": (),
            }
            for partition in self.topics[name]
        ]
        return values | {"partitions": numbers}

    def _create_topics(self, request: Request) -> Values:
        topics = []
        for topic in request.body.topics:
            count = len(topic.assignments) or topic.num_partitions
            count = self.settings.partitions if count == -1 else count
            code = self._make(topic.name, count, is_trial=request.body.validate_only)
            values = {"name": topic.name, "error_code": code, "error_message": None if code == _OK else code.name}
            values |= {"num_partitions": count, "replication_factor": 1 + len(FOLLOWERS), "configs": ()}
            topics.append(values)
        return {"topics": topics}

    def _make(self, name: str, count: int, *, is_trial: bool = False) -> ErrorCode:
        if name in self.topics:
            return ErrorCode.topic_already_exists
        is_plain = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)
        if not is_plain or not 1 <= len(name) <= _LONGEST_NAME or name in (".", ".."):
            return ErrorCode.invalid_topic_exception
        if not 1 <= count <= self.settings.most_partitions - sum(map(len, self.topics.values())):
            return ErrorCode.invalid_partitions
        if not is_trial:
            settings = self.settings.partition
            parts = [self.make_partition(self.fetches, self.acks, name, number, settings) for number in range(count)]
            self.topics[name] = parts
        return _OK

    def _delete_topics(self, request: Request) -> Values:
        answers = []
        for name in request.body.topic_names:
            code = _OK if name in self.topics else ErrorCode.unknown_topic_or_partition
            if code == _OK:
                self._remove(name)
            answers.append({"name": name, "error_code": code})
        return {"responses": answers}

    def _remove(self, name: str) -> None:
        for partition in self.topics.pop(name):
            partition.remove()

    def _partition(self, topic: str, number: int) -> Partition:
        parts = self.topics.get(topic, [])
        if not 0 <= number < len(parts):
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return parts[number]

    # groups

    def _find_coordinator(self, request: Request) -> Values:
        values = {"node_id": LEADER, "host": self.connections.host, "port": self.connections.port}
        if getattr(request.body, "key_type", 0):
            values = {"node_id": -1, "host": "", "port": -1}
        code = _OK if values["port"] != -1 else ErrorCode.coordinator_not_available
        return {"error_code": code, "error_message": None, **values}

    def _group(self, name: str) -> Group:
        if not name:
            raise KafkaError(ErrorCode.invalid_group_id)
        if name not in self.groups:
            self.groups[name] = Group(self.rebalances, name, self.settings.group)
        return self.groups[name]

    async def _join_group(self, request: Request) -> Values:
        body, name = request.body, request.body.member_id
        session = body.session_timeout.total_seconds()
        try:
            group = self._group(body.group_id)
            if not name:
                name = group.expect(request.client_id, session)
                if request.version >= _NAMES_FIRST:
                    raise KafkaError(ErrorCode.member_id_required)
            elif name not in group.members:
                raise KafkaError(ErrorCode.unknown_member_id)
            protocols = {each.name: bytes(each.metadata) for each in body.protocols}
            member = Member(body.protocol_type, protocols, session, body.rebalance_timeout.total_seconds())
            joined = await group.join(name, member)
        except KafkaError as error:
            nothing = {"generation_id": -1, "protocol_type": None, "protocol_name": "", "leader": "", "members": ()}
            return {"error_code": error.code, "member_id": name, **nothing}
        members = [{"member_id": each, "metadata": metadata} for each, metadata in joined.members.items()]
        return {
            "error_code": _OK,
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol,
            "leader": joined.leader,
            "member_id": name,
            "members": members,
        }

    async def _sync_group(self, request: Request) -> Values:
        body = request.body
        plan = {each.member_id: bytes(each.assignment) for each in body.assignments}
        try:
            part = await self._group(body.group_id).sync(body.member_id, body.generation_id, plan)
        except KafkaError as error:
            return {"error_code": error.code, "assignment": b""}
        names = {name: getattr(body, name, None) for name in ("protocol_type", "protocol_name")}
        return {"error_code": _OK, "assignment": part, **names}

    def _heartbeat(self, request: Request) -> Values:
        body = request.body
        return {"error_code": _tried(lambda: self._group(body.group_id).heartbeat(body.member_id, body.generation_id))}

    def _leave_group(self, request: Request) -> Values:
        body, answers = request.body, []
        names = [each.member_id for each in body.members] if hasattr(body, "members") else [body.member_id]
        for name in names:
            code = _tried(lambda: self._group(body.group_id).leave(name))
            answers.append({"member_id": name, "group_instance_id": None, "error_code": code})
        return {"error_code": _OK if hasattr(body, "members") else answers[0]["error_code"], "members": answers}

    def _offset_commit(self, request: Request) -> Values:
        body, offsets = request.body, {}
        generation = getattr(body, "generation_id_or_member_epoch", -1)
        for topic, part in _parts(body.topics):
            offsets[topic.name, part.partition_index] = part.committed_offset, part.committed_metadata or ""
        code = _tried(lambda: self._group(body.group_id).commit(body.member_id, generation, offsets))
        topics = [
            {
                "name": topic.name,
                "partitions": [{"partition_index": p.partition_index, "error_code": code} for p in topic.partitions],
            }
            for topic in body.topics
        ]
        return {"topics": topics}

    def _offset_fetch(self, request: Request) -> Values:
        body = request.body
        known = self.groups[body.group_id].offsets if body.group_id in self.groups else {}
        wanted = list(known)
        if body.topics is not None:
            wanted = [(topic.name, number) for topic in body.topics for number in topic.partition_indexes]
        topics = defaultdict(list)
        for topic, number in wanted:
            offset, metadata = known.get((topic, number), (-1, ""))
            values = {"partition_index": number, "committed_offset": offset, "metadata": metadata, "error_code": _OK}
            topics[topic].append(values)
        answers = [{"name": name, "partitions": parts} for name, parts in topics.items()]
        return {"topics": answers, "error_code": _OK}


class _Nothing:
    """A partition that is not here, for a fetch."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def readable(self, offset: int, /) -> int:
        raise self._error

    def read(self, offset: int, max_bytes: int, /) -> Read:
        raise self._error


def _parts(topics: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """Each partition of a request, with its topic."""
    for topic in topics:
        for part in getattr(topic, "partition_data", None) or getattr(topic, "partitions", ()):
            yield topic, part


def _read_values(read: Read | SourceError) -> Values:
    values: Values = {"aborted_transactions": None, "preferred_read_replica": -1}
    if isinstance(read, Read):
        high, records = read.high_watermark, read.records
        offsets = {"high_watermark": high, "last_stable_offset": high, "log_start_offset": read.start}
        return values | {"error_code": _OK, "records": records, **offsets}
    nothing = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "records": b""}
    return values | {"error_code": code_of(read), **nothing}


def _offset_at(partition: Partition, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp of what a consumer asks for."""
    if timestamp == _LATEST:
        return partition.replicas.high_watermark, -1
    if timestamp == _EARLIEST:
        return partition.log.start, -1
    if timestamp < 0:
        raise KafkaError(ErrorCode.unsupported_version)
    return partition.log.offset_at(timestamp, partition.replicas.high_watermark) or (-1, -1)


def _tried(step: Callable[[], None]) -> ErrorCode:
    try:
        step()
    except KafkaError as error:
        return error.code
    return _OK
