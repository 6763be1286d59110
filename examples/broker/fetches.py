"""Fetches of consumers: the operation that waits until there is enough to read, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final
from uuid import UUID

from aiopurgatory import DelayedOperation
from aiopurgatory.operations import Readable

from .answers import OK, Key, Values
from .errors import KafkaError
from .replication import Read

_NOTHING: Final = Read(b"", -1, -1)


Parts = Mapping[int, tuple[Readable[Read], int]]


class Fetched(Values):
    """The answer to a fetch. It reads the records when it is written: until then, it takes no memory for them.

    Args:
        topics: for each partition of each topic, what to read and from which offset on.
        ids: of topics that are fetched by id.
        max_bytes: the most bytes to read in all.
    """

    error_code: ClassVar = OK
    session_id: ClassVar = 0

    def __init__(self, topics: Mapping[str, Parts], ids: Mapping[str, UUID], max_bytes: int) -> None:
        self._topics = topics
        self._ids = ids
        self._max_bytes = max_bytes

    @property
    def partitions(self) -> list[Key]:
        return [(topic, number) for topic, parts in self._topics.items() for number in parts]

    def has(self, min_bytes: int) -> bool:
        """Return True if as many bytes can be read, or all that fit in, or if a partition has an error."""
        readable = 0
        for parts in self._topics.values():
            for view, offset in parts.values():
                try:
                    readable += view.readable(offset)
                except KafkaError:
                    return True
        return readable >= min(min_bytes, self._max_bytes)

    @property
    def responses(self) -> list[Values]:
        """The records and errors of each topic, as they are now."""
        left = self._max_bytes
        answers = []
        for topic, parts in self._topics.items():
            found = []
            for number, (view, offset) in parts.items():
                try:
                    read = view.read(offset, min(view.readable(offset), left))
                    found.append(_read(number, read))
                    left -= len(read.records)  # its first batch may be larger than the client asks for
                except KafkaError as error:
                    found.append(_read(number, _NOTHING, error.code))
            answers.append(Values(topic=topic, topic_id=self._ids.get(topic), partitions=found))
        return answers


def _read(number: int, read: Read, code: int = OK) -> Values:
    return Values(
        partition_index=number,
        error_code=code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.high_watermark,
        log_start_offset=read.start,
        records=read.records,
    )


class DelayedFetch(DelayedOperation[Fetched]):
    """Waits until *min_bytes* can be read. With a timeout of 0 it does not wait.

    Source: Kafka DelayedFetch.
    """

    def __init__(self, fetched: Fetched, min_bytes: int, timeout: float) -> None:
        super().__init__(timeout)
        self._fetched = fetched
        self._min_bytes = min_bytes if timeout > 0 else 0

    def try_complete(self) -> bool:
        return self._fetched.has(self._min_bytes) and self.force_complete()

    def on_complete(self) -> Fetched:
        return self._fetched
