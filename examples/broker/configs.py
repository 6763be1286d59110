"""The configs of topics and of the broker: their names, their values, and the request that asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from .answers import OK, Values
from .errors import KafkaError
from .wire import Request

if TYPE_CHECKING:
    from .server import Broker

# Kafka's numbers for kinds of resources, for where a value comes from, and for types of values.
_TOPIC: Final = 2
_BROKER: Final = 4
_OF_TOPIC: Final = 1
_DEFAULT: Final = 5
_BOOLEAN: Final = 1
_STRING: Final = 2
_INT: Final = 3
_LONG: Final = 5
_DOUBLE: Final = 6
_LIST: Final = 7

#: A topic's configs, with type and default. The broker obeys max.message.bytes, min.insync.replicas, retention.bytes.
TOPIC_CONFIGS: Final[Mapping[str, tuple[int, str]]] = {
    "cleanup.policy": (_LIST, "delete"),
    "compression.type": (_STRING, "producer"),
    "delete.retention.ms": (_LONG, "86400000"),
    "file.delete.delay.ms": (_LONG, "60000"),
    "flush.messages": (_LONG, "9223372036854775807"),
    "flush.ms": (_LONG, "9223372036854775807"),
    "follower.replication.throttled.replicas": (_LIST, ""),
    "index.interval.bytes": (_INT, "4096"),
    "leader.replication.throttled.replicas": (_LIST, ""),
    "max.compaction.lag.ms": (_LONG, "9223372036854775807"),
    "max.message.bytes": (_INT, "1048588"),
    "message.downconversion.enable": (_BOOLEAN, "true"),
    "message.timestamp.after.max.ms": (_LONG, "9223372036854775807"),
    "message.timestamp.before.max.ms": (_LONG, "9223372036854775807"),
    "message.timestamp.type": (_STRING, "CreateTime"),
    "min.cleanable.dirty.ratio": (_DOUBLE, "0.5"),
    "min.compaction.lag.ms": (_LONG, "0"),
    "min.insync.replicas": (_INT, "1"),
    "preallocate": (_BOOLEAN, "false"),
    "retention.bytes": (_LONG, "-1"),
    "retention.ms": (_LONG, "604800000"),
    "segment.bytes": (_INT, "1073741824"),
    "segment.index.bytes": (_INT, "10485760"),
    "segment.jitter.ms": (_LONG, "0"),
    "segment.ms": (_LONG, "604800000"),
    "unclean.leader.election.enable": (_BOOLEAN, "false"),
}
_CHOICES: Final = {
    "cleanup.policy": {"delete", "compact", "compact,delete", "delete,compact"},
    "compression.type": {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
#: The broker's configs that Kafka can change while it runs. (Here, nothing can be changed.)
_DYNAMIC: Final = {"advertised.listeners", "log.retention.bytes", "min.insync.replicas"}
#: Those that may not be negative or 0 here.
_POSITIVE: Final = {"min.insync.replicas", "retention.bytes", "max.message.bytes", "segment.bytes"}


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return *configs*, those of a topic to create. Raises: KafkaError: a name or a value is not allowed."""
    found = {name: value for name, value in configs.items() if value is not None}
    if len(found) < len(configs) or not all(_is_allowed(name, value) for name, value in found.items()):
        raise KafkaError(ErrorCode.invalid_config)
    if found.get("retention.bytes") == "-1":  # no limit: here, the broker's own
        del found["retention.bytes"]
    return found


def _is_allowed(name: str, value: str) -> bool:
    kind, _ = TOPIC_CONFIGS.get(name, (None, ""))
    if kind == _BOOLEAN:
        return value in ("true", "false")
    if kind in (_INT, _LONG, _DOUBLE):
        try:
            number = float(value) if kind == _DOUBLE else int(value)
        except ValueError:
            return False
        return number >= 1 or name not in _POSITIVE or (name, number) == ("retention.bytes", -1)
    return kind is not None and value in _CHOICES.get(name, {value})


def configs_of_topic(broker: Broker, own: Mapping[str, str]) -> list[Values]:
    """All configs of a topic that was created with *own*."""
    settings = broker.settings.partition
    of_broker = {
        "max.message.bytes": str(settings.max_batch),
        "min.insync.replicas": str(settings.min_in_sync),
        "retention.bytes": str(settings.max_bytes),
    }
    found = []
    for name, (kind, default) in TOPIC_CONFIGS.items():
        value = own.get(name, of_broker.get(name, default))
        found.append(_config(name, value, kind, _OF_TOPIC if name in own else _DEFAULT, read_only=False))
    return found


def _configs_of_broker(broker: Broker) -> list[Values]:
    settings = broker.settings
    known = {
        "advertised.listeners": (_STRING, f"PLAINTEXT://{broker.host}:{broker.port}"),
        "auto.create.topics.enable": (_BOOLEAN, "true"),
        "broker.id": (_INT, "0"),
        "default.replication.factor": (_INT, "1"),
        "fetch.max.bytes": (_INT, str(settings.max_answer)),
        "group.initial.rebalance.delay.ms": (_INT, _in_ms(settings.group.initial_delay)),
        "group.min.session.timeout.ms": (_INT, _in_ms(settings.group.sessions[0])),
        "group.max.session.timeout.ms": (_INT, _in_ms(settings.group.sessions[1])),
        "log.retention.bytes": (_LONG, str(settings.partition.max_bytes)),
        "min.insync.replicas": (_INT, str(settings.partition.min_in_sync)),
        "message.max.bytes": (_INT, str(settings.partition.max_batch)),
        "num.partitions": (_INT, str(settings.partitions)),
        "replica.lag.time.max.ms": (_LONG, _in_ms(settings.partition.max_lag)),
        "socket.request.max.bytes": (_INT, str(settings.max_request)),
    }
    return [
        _config(name, value, kind, _DEFAULT, read_only=name not in _DYNAMIC) for name, (kind, value) in known.items()
    ]


def _in_ms(seconds: float) -> str:
    return str(round(seconds * 1_000))


def _config(name: str, value: str, kind: int, source: int, *, read_only: bool) -> Values:
    return Values(
        name=name,
        value=value,
        config_type=kind,
        config_source=source,
        is_default=source == _DEFAULT,
        read_only=read_only,
        is_sensitive=False,
        synonyms=(),
        documentation=None,
    )


def describe_configs(broker: Broker, request: Request) -> Values:
    results = []
    resources = {(each.resource_type, each.resource_name): each for each in request.body.resources}
    for resource in resources.values():  # each once: its answer may be long
        code, configs = OK, list[Values]()
        try:
            configs = _described(broker, resource.resource_type, resource.resource_name, resource.configuration_keys)
        except KafkaError as error:
            code = error.code
        kind, name = resource.resource_type, resource.resource_name
        results.append(Values(error_code=code, resource_type=kind, resource_name=name, configs=configs))
    return Values(results=results)


def _described(broker: Broker, kind: int, name: str, wanted: Iterable[str] | None) -> list[Values]:
    if kind == _TOPIC:
        configs = configs_of_topic(broker, broker.topics.topic(name).configs)
    elif kind == _BROKER and name in ("", "0"):
        configs = _configs_of_broker(broker)
    else:
        raise KafkaError(ErrorCode.invalid_request)
    names = set(wanted or ())
    return [each for each in configs if not names or _name_of(each) in names]


def _name_of(config: Any) -> str:
    return str(config.name)
