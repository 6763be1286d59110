"""What all answers have in common: values by name, of which each version takes those that it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from .errors import KafkaError

Values = dict[str, Any]
#: The name of a topic and the number of a partition.
Key = tuple[str, int]

OK: Final = ErrorCode.none


def by_topic(answers: Mapping[Key, Values], name: str = "name", parts: str = "partitions") -> list[Values]:
    """The answers to partitions, by topic; *name* and *parts* are what a topic calls its name and its partitions."""
    topics = defaultdict(list)
    for (topic, _), values in answers.items():
        topics[topic].append(values)
    return [{name: topic, parts: tuple(values)} for topic, values in topics.items()]


def partitions(topics: Iterable[Any], name: str = "name", parts: str = "partitions") -> Iterator[tuple[str, Any]]:
    """Each partition of a request, with the name of its topic."""
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
