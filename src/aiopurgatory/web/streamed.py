"""The content of an EventRoute's streams. Here: the states of a source."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Generic, final

from ..errors import GoneError
from .desk import Desk
from .prefer import K, PollRequest
from .reader import Reader
from .sse import event, gone
from .stream import EventFeed, EventStream


class Streamed(Generic[K]):
    """The content of an EventRoute's streams. Args: desk: has the places of the streams, and counts them."""

    def __init__(self, desk: Desk) -> None:
        self.desk: Final = desk

    @abstractmethod
    def open(self, request: PollRequest[K]) -> tuple[EventStream[K], EventFeed]:
        """Return a stream for *request*, not parked yet, and its feed."""


@final
class States(Streamed[K]):
    """The states of the source of *reader*."""

    def __init__(self, desk: Desk, reader: Reader[K]) -> None:
        super().__init__(desk)
        self._reader = reader

    def open(self, request: PollRequest[K]) -> tuple[EventStream[K], EventFeed]:
        desk = self.desk
        stream = EventStream(request, self._reader.peek, desk.purgatory, desk.policy)
        return stream, StateFeed(self._reader, stream, request.since)


@final
class StateFeed(Generic[K]):
    """Each event has the newest state. Args: stream: knows the check behind the read. after: the client's version."""

    __slots__ = ("_reader", "_stream", "is_over", "seen", "version")

    def __init__(self, reader: Reader[K], stream: EventStream[K], after: str | None) -> None:
        self._reader, self._stream = reader, stream
        self.version = after
        #: The last result of version(). It may lag behind that of the last event.
        self.seen = ""
        self.is_over = False

    async def next(self, after: str | None, /) -> bytes:
        resource, check, body = self._stream.resource, self._stream.check, self._reader.body
        self.seen = version = await self._reader.version(resource, check)
        events = b""
        if version != after:
            try:
                version, found = await body(resource, after, version, check)
                events = b"" if version == after else event(version, found)
            except GoneError as exc:
                version, found = await body(resource, None, version, check)
                events = gone(exc) + event(version, found)
        self.version = version
        return events

    def close(self) -> None:
        """Nothing is to be closed."""
