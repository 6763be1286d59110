"""Handlers that change topics. Each waits until the replicas know, and at its deadline answers for the ones that do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kio.schema.errors import ErrorCode

from aiopurgatory.operations import Replicas, produce

from .answers import OK, Key, Values, by_topic, partitions
from .catalog import REPLICATION_FACTOR, Plan
from .configs import configs_of_topic
from .errors import KafkaError, code_of
from .wire import Request

if TYPE_CHECKING:
    from .server import Broker

K = TypeVar("K", str, Key)
#: Returns the answer for a topic, or None while its replicas do not know.
Condition = Callable[[], ErrorCode | None]


def _step(step: Callable[[], Condition]) -> Condition:
    """Return the condition that *step* returns; if it raises a KafkaError, one with this answer."""
    try:
        return step()
    except KafkaError as error:
        code = error.code
        return lambda: code


async def _answers(broker: Broker, conditions: dict[K, Condition], body: Any) -> dict[K, ErrorCode]:
    """Wait for the answers, of topics or of partitions. At the deadline, the others get REQUEST_TIMED_OUT."""
    if not conditions:
        return {}
    answers = dict.fromkeys(conditions, ErrorCode.request_timed_out)
    missing = conditions.copy()

    def answered() -> dict[K, ErrorCode] | None:
        for key, condition in list(missing.items()):
            code = condition()
            if code is not None:
                answers[key] = code
                del missing[key]
        return None if missing else answers

    topics = {key if isinstance(key, str) else key[0] for key in conditions}
    keys = [("topic", name) for name in topics]
    return await broker.admin.wait_for(answered, keys, timeout=body.timeout.total_seconds(), default=answers)


def _by_name(step: Callable[[Any], Condition], topics: Iterable[Any]) -> dict[str, Condition]:
    """Return the condition of each topic. Kafka refuses topics that come twice in a request."""
    topics = list(topics)
    times = Counter(each.name for each in topics)
    return {each.name: _step(partial(step, each)) if times[each.name] == 1 else _twice for each in topics}


def _twice() -> ErrorCode:
    return ErrorCode.invalid_request


def _done() -> ErrorCode:
    return OK


def _said(code: ErrorCode) -> str | None:
    return None if code == OK else code.name


async def create_topics(broker: Broker, request: Request) -> Values:
    body, plans = request.body, dict[str, Plan]()

    def created(wanted: Any) -> Condition:
        plan = plans[wanted.name] = broker.topics.plan(
            wanted.name,
            wanted.num_partitions,
            wanted.replication_factor,
            {each.partition_index: tuple(each.broker_ids) for each in wanted.assignments},
            {each.name: each.value for each in wanted.configs},
        )
        return _done if body.validate_only else broker.topics.make(plan).created

    codes = await _answers(broker, _by_name(created, body.topics), body)
    return Values(topics=[_created(broker, name, code, plans.get(name)) for name, code in codes.items()])


def _created(broker: Broker, name: str, code: ErrorCode, plan: Plan | None) -> Values:
    if plan is None or code != OK:
        return Values(name=name, error_code=code, error_message=_said(code), topic_id=None)
    return Values(
        name=name,
        error_code=code,
        topic_id=broker.topics[name].id if name in broker.topics else None,
        num_partitions=plan.count,
        replication_factor=REPLICATION_FACTOR,
        configs=configs_of_topic(broker, plan.configs),
    )


async def create_partitions(broker: Broker, request: Request) -> Values:
    body = request.body

    def grown(wanted: Any) -> Condition:
        topic = broker.topics.grow(wanted.name, wanted.count, validate_only=body.validate_only)
        return _done if body.validate_only else topic.created

    codes = await _answers(broker, _by_name(grown, body.topics), body)
    answers = [Values(name=name, error_code=code, error_message=_said(code)) for name, code in codes.items()]
    return Values(results=answers)


async def delete_topics(broker: Broker, request: Request) -> Values:
    body, unknown = request.body, list[Values]()
    names: list[str] = list(getattr(body, "topic_names", ()))
    for each in getattr(body, "topics", ()):  # by name or by id
        name = each.name if each.name is not None else broker.topics.name_of(each.topic_id)
        if name is None:
            unknown.append(Values(name=None, topic_id=each.topic_id, error_code=ErrorCode.unknown_topic_id))
        else:
            names.append(name)
    ids = {name: broker.topics[name].id for name in names if name in broker.topics}

    def removed(name: str) -> Condition:
        topic = broker.topics.remove(name)
        for group in broker.groups.values():
            group.forget_topic(name)
        return topic.removed

    codes = await _answers(broker, {name: _step(partial(removed, name)) for name in names}, body)
    answers = [
        Values(name=name, topic_id=ids.get(name), error_code=code, error_message=_said(code))
        for name, code in codes.items()
    ]
    return Values(responses=answers + unknown)


async def elect_leaders(broker: Broker, request: Request) -> Values:
    """Wait until each partition's followers follow its preferred leader, which leads from the start."""
    wanted: list[Key]
    if request.body.topic_partitions is None:
        wanted = [(name, part.number) for name, topic in broker.topics.items() for part in topic]
    else:
        wanted = list(partitions(request.body.topic_partitions, name="topic"))

    def led(key: Key) -> Condition:
        return broker.topics.partition(*key).led

    codes = await _answers(broker, {key: _step(partial(led, key)) for key in wanted}, request.body)
    answers = {
        key: Values(partition_id=key[1], error_code=code, error_message=_said(code)) for key, code in codes.items()
    }
    return Values(error_code=OK, replica_election_results=by_topic(answers, "topic", "partition_result"))


async def delete_records(broker: Broker, request: Request) -> Values:
    """Wait until the low watermark of each partition, the lowest start of its live replicas, is the new start."""
    required: dict[Key, tuple[Replicas[int], int] | Exception] = {}
    for topic, part in partitions(request.body.topics):
        key = topic, part.partition_index
        try:
            partition = broker.topics.partition(*key)
            required[key] = partition.starts, partition.delete_records(part.offset)
        except KafkaError as error:
            required[key] = error.with_traceback(None)  # as in produce()
    errors: dict[Key, Exception | None] = {}
    if required:
        errors = await produce(broker.admin, required, timeout=request.body.timeout.total_seconds())
    answers = {}
    for key, found in errors.items():
        need = required[key]
        low = -1 if found is not None or isinstance(need, Exception) else need[0].high_watermark
        answers[key] = Values(partition_index=key[1], low_watermark=low, error_code=code_of(found))
    return Values(topics=by_topic(answers))
