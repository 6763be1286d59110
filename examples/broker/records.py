"""Handlers for produce, which waits for acks, and fetch, which waits for enough to read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from aiopurgatory.operations import Replicas

from .answers import OK, Key, Values, by_topic, partitions
from .errors import KafkaError, code_of
from .fetches import Fetched
from .replication import Partition, Read, View
from .wire import Request, WireError

if TYPE_CHECKING:
    from .server import Broker

# Special timestamps.
_LATEST: Final = -1
_EARLIEST: Final = -2
#: The share of its timeout by which a fetch may end later, and the most seconds. Some clients wait little longer.
_SLACK: Final = 0.1
_MOST_SLACK: Final = 0.5
# Begins the name of a topic with an unknown id. No topic's name has a space.
_UNKNOWN_ID: Final = "id "

#: For each partition that was appended to, its replicas and the offset that they must reach; or the error.
Required = dict[Key, tuple[Replicas[int], int] | Exception]


def produce(broker: Broker, request: Request) -> Values | Awaitable[Values] | None:
    acks, timeout = request.body.acks, request.body.timeout.total_seconds()
    bases, required = _appended(broker, request.body)
    request.body = None  # the log has the records; a wait needs no second copy of them
    if acks == -1 and required:
        return _acked(broker, bases, required, timeout)
    errors = {key: need if isinstance(need, Exception) else None for key, need in required.items()}
    if acks == 0:
        _close_if_refused(errors)
        return None
    return _produced(bases, errors)


async def _acked(broker: Broker, bases: Mapping[Key, int], required: Required, timeout: float) -> Values:
    return _produced(bases, await broker.acked(required, timeout))


def _appended(broker: Broker, body: Any) -> tuple[dict[Key, int], Required]:
    """Append the batches. Returns: the offset of each, and the argument of broker.acked()."""
    bases, required = dict[Key, int](), Required()
    for topic, part in partitions(body.topic_data, parts="partition_data"):
        key = topic, part.index
        try:
            if body.acks not in (-1, 0, 1):
                raise KafkaError(ErrorCode.invalid_required_acks)
            partition = broker.partition(*key)
            bases[key], reach = partition.append(part.records, is_for_all=body.acks == -1)
            required[key] = partition.replicas, reach
        except KafkaError as error:
            required[key] = error.with_traceback(None)  # which would keep the request until a garbage collection
    return bases, required


def _close_if_refused(errors: Mapping[Key, Exception | None]) -> None:
    """Raises: WireError: there is an error, and this is the only way to tell the client, as in Kafka."""
    for (topic, number), error in errors.items():
        if error:
            raise WireError(f"a batch for {topic}-{number} was refused with {error}, and acks=0 expects no answer")


def _produced(bases: Mapping[Key, int], errors: Mapping[Key, Exception | None]) -> Values:
    answers = {}
    for key, error in errors.items():
        code = code_of(error)
        answers[key] = Values(index=key[1], error_code=code, base_offset=bases[key] if code == OK else -1)
    return Values(responses=by_topic(answers, parts="partition_responses"))


def fetch(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    body, request.body = request.body, None  # it may have MiBs that the wait does not need
    if getattr(body, "session_id", 0):  # no sessions: the client retries with a full request
        return Values(error_code=ErrorCode.fetch_session_id_not_found, session_id=0, responses=())
    topics, ids = defaultdict[str, dict[int, tuple[View | _Nothing, int]]](dict), dict[str, UUID]()
    for topic in body.topics:
        name = _name(broker, topic, ids)
        for part in topic.partitions:
            topics[name][part.partition] = _view(broker, name, part), part.fetch_offset
    most = max(min(body.max_bytes, broker.settings.max_answer), 0)
    fetched = Fetched(topics, ids, most)
    if not fetched.partitions:
        return fetched
    return broker.read(fetched, max(body.min_bytes, 0), shared(body.max_wait.total_seconds(), time.monotonic()))


def shared(timeout: float, now: float) -> float:
    """Return *timeout*, or up to a tenth more, at most half a second, so that it ends together with others.

    A broker with idle consumers then wakes up for many answers at once, which takes 40 % less CPU time.
    """
    step = min(timeout * _SLACK, _MOST_SLACK)
    return max(timeout, -(-(now + timeout) // step) * step - now) if step > 0 else timeout


def _name(broker: Broker, topic: Any, ids: dict[str, UUID]) -> str:
    """Return the name of a topic in a fetch; of an unknown id, one that no topic has."""
    if hasattr(topic, "topic"):
        return str(topic.topic)
    name = broker.topics.name_of(topic.topic_id) or f"{_UNKNOWN_ID}{topic.topic_id}"
    ids[name] = topic.topic_id
    return name


class _Nothing:
    """Stands in a fetch for a partition that does not exist."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def readable(self, offset: int, /) -> int:
        raise KafkaError(self._code)

    def read(self, offset: int, max_bytes: int, /) -> Read:
        raise KafkaError(self._code)


def _view(broker: Broker, topic: str, part: Any) -> View | _Nothing:
    try:
        if topic.startswith(_UNKNOWN_ID):
            raise KafkaError(ErrorCode.unknown_topic_id)
        return View(broker.partition(topic, part.partition), "committed", max(part.partition_max_bytes, 0))
    except KafkaError as error:
        return _Nothing(error.code)


def list_offsets(broker: Broker, request: Request) -> Values:
    answers = {}
    wanted = {(topic, part.partition_index): part.timestamp for topic, part in partitions(request.body.topics)}
    for key, timestamp in wanted.items():
        code, offset, found = OK, -1, -1
        try:
            offset, found = _offset_at(broker.partition(*key), timestamp)
        except KafkaError as error:
            code = error.code
        answers[key] = Values(partition_index=key[1], error_code=code, offset=offset, timestamp=found)
    return Values(topics=by_topic(answers))


def _offset_at(partition: Partition, timestamp: int) -> tuple[int, int]:
    """Return the offset and timestamp that a consumer asks for."""
    if timestamp == _LATEST:
        return partition.replicas.high_watermark, -1
    if timestamp == _EARLIEST:
        return partition.log.start, -1
    if timestamp < 0:
        raise KafkaError(ErrorCode.unsupported_version)
    return partition.log.offset_at(timestamp, partition.replicas.high_watermark) or (-1, -1)


def init_producer_id(broker: Broker, request: Request) -> Values:
    if request.body.transactional_id is not None:  # no transactions: clients do not retry this error
        code = ErrorCode.transactional_id_authorization_failed
        return Values(error_code=code, producer_id=-1, producer_epoch=-1)
    return Values(error_code=OK, producer_id=next(broker.producer_ids), producer_epoch=0)
