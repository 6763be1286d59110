"""The states of a source, as the content of polls and of event streams."""

from __future__ import annotations

from typing import Final, Generic, cast, final

from ..core.kit import NO_CHECK, AwaitedWait, core_of
from ..errors import GoneError, NotFoundError
from ..waits import read_until
from .answer import MAX_VERSION, NO_STORE, VARY, Answer, RawHeader, SourceBusyError, etag, tag_of
from .answering import Content
from .desk import Desk
from .poll import LongPoll, Parked, ReadPoll
from .prefer import ANY, K, PollRequest
from .reads import Asked, Reader
from .stream import EventFeed, EventStream, event, gone


@final
class States(Content[K]):
    """The states of the source of *reader*, in bodies of the type *media_type*."""

    def __init__(self, desk: Desk, reader: Reader[K], media_type: bytes) -> None:
        super().__init__(desk)
        self.reader: Final = reader
        self._media_type: Final = (b"content-type", media_type)

    async def answer(self, request: PollRequest[K], wait: float, parked: Parked) -> Answer:
        reader, resource = self.reader, request.resource
        if reader.peek is None:
            return await self._answer_by_reads(request, wait, parked)
        version = reader.version_now(resource)
        known = request.known(version)
        is_full, nothing_new = request.respond is not None, _nothing_new(request)
        if known is ANY or _has(known, version):
            known = (version,)
            if wait > 0:
                timeout = self.desk.policy.timeout(wait)
                poll = LongPoll(request, timeout, reader.peek, version)
                self.desk.park(poll, request, parked)
                del poll, request  # an exception keeps this frame, and a parked poll no more of it than it needs
                await parked[0]
        return self._news(resource, known, nothing_new, is_full)

    def _news(self, resource: K, known: tuple[str, ...], nothing_new: int, is_full: bool) -> Answer:
        """Answer a client that has the versions *known*: 200 with the body, or the status *nothing_new*.

        Args: is_full: that has the body, too.
        """
        version, body = self.reader.version_now(resource), b""
        if is_full or not _has(known, version):
            version, body = self.reader.body_now(resource, _since(known), version)
        if not _has(known, version):
            return self.found(version, body)
        if is_full:
            return self.found(version, body, nothing_new)
        return Answer(nothing_new, b"", _headers(version), version)

    def found(self, version: str, body: bytes, status: int = 200) -> Answer:
        """Answer with *body*, of *version*."""
        return Answer(status, body, [*_headers(version), self._media_type], version)

    async def _answer_by_reads(self, request: PollRequest[K], wait: float, parked: Parked) -> Answer:
        reading = StateReading(self, request, is_late=wait <= 0)
        if wait > 0 or self.desk.purgatory.is_open:
            timeout = self.desk.policy.timeout(wait) if wait > 0 else 0.0  # 0: one read
            poll = ReadPoll(core_of(self.desk.purgatory), request, timeout, reading.hurry)
            self.desk.park(poll, request, parked)
            del poll  # an exception keeps this frame
            found = await read_until(cast("AwaitedWait", parked[0]), reading.read)
        else:
            found = await reading.read(None)
        return found or reading.rest or Answer(_nothing_new(request), b"", _headers(reading.version), reading.version)

    def stream_of(self, request: PollRequest[K]) -> EventStream[K]:
        feed = StateFeed(self.reader, request.resource, request.since)
        return EventStream(self.desk, request, feed)


@final
class StateReading(Generic[K]):
    """The reads of one poll of a source that is awaited. Args: is_late: the poll may not wait."""

    __slots__ = ("_asked", "_known", "_resource", "_rest_status", "_states", "hurry", "rest", "version")

    def __init__(self, states: States[K], request: PollRequest[K], is_late: bool) -> None:
        self._states, self._resource = states, request.resource
        self._known = request.known("")
        self._asked = Asked(is_late)
        self.hurry: Final = self._asked.hurry
        #: The status of an answer that has the body without news; 0: it has none.
        self._rest_status = _nothing_new(request) if request.respond is not None else 0
        #: That answer, once the poll's time is up.
        self.rest: Answer | None = None
        #: The last version that was read; empty: none yet.
        self.version = ""

    async def read(self, poll: ReadPoll[K] | None) -> Answer | None:
        """Read what is new, for *poll* if it was parked. Returns: None: nothing is. Raises: one of REFUSALS."""
        # Before the first read, checks may have missed this.
        check = poll.bell.check if poll is not None and self.version else NO_CHECK
        try:
            self.version = await self._states.reader.version(self._resource, check, self._asked)
        except SourceBusyError:
            # The last read could not begin. It was only to find a change without a check.
            is_called = poll is None or poll.bell.is_checked or poll.bell.is_rung
            if self.version and not (is_called or self._rest_status):
                return None
            raise
        finally:
            del poll  # an exception keeps this frame
        if self._known is ANY:
            self._known = (self.version,)
        is_last = self._asked.is_late and self._rest_status != 0
        return await self._read_body(check) if is_last or not _has(self._known, self.version) else None

    async def _read_body(self, check: int) -> Answer | None:
        """Read the body, and its version. Returns: None: the client has that version."""
        since, reader = _since(self._known), self._states.reader
        try:
            self.version, body = await reader.body(self._resource, since, self.version, check, self._asked)
        except (GoneError, NotFoundError) as exc:
            return self._states.desk.refusals.answer(exc)
        if not _has(self._known, self.version):
            return self._states.found(self.version, body)
        if self._rest_status:
            self.rest = self._states.found(self.version, body, self._rest_status)
        return None


@final
class StateFeed(EventFeed, Generic[K]):
    """Each event has the newest state."""

    __slots__ = ("_reader", "_resource", "_seen")

    def __init__(self, reader: Reader[K], resource: K, after: str | None) -> None:
        super().__init__(after, is_awaited=reader.peek is None)
        self._reader, self._resource = reader, resource
        #: The last result of version(). The last event may have a newer one.
        self._seen = ""

    def has_news(self, is_checked: bool) -> bool:
        peek = self._reader.peek
        return is_checked if peek is None else peek(self._resource) != self._seen

    async def next(self, check: int) -> bytes:
        resource, after, body = self._resource, self.version, self._reader.body
        self._seen = version = await self._reader.version(resource, check)
        events = b""
        if after not in (version, tag_of(version)):
            try:
                version, found = await body(resource, after, version, check)
                events = b"" if after in (version, tag_of(version)) else event(tag_of(version), found)
            except GoneError as exc:
                version, found = await body(resource, None, version, check)
                events = gone(exc) + event(tag_of(version), found)
        self.version = version
        return events


def _has(known: tuple[str, ...], version: str) -> bool:
    """Whether a client that has the versions *known*, or the digests of long ones, has *version*."""
    return version in known or (len(version) > MAX_VERSION and tag_of(version) in known)


def _since(known: tuple[str, ...]) -> str | None:
    """The version for Source.read(), of a client that has the versions *known*."""
    return known[0] if len(known) == 1 else None


def _nothing_new(request: PollRequest[K]) -> int:
    """The status if there is nothing new: 304 answers an If-None-Match."""
    return 304 if request.since is None else 204


def _headers(version: str) -> list[RawHeader]:
    return [etag(version), NO_STORE, VARY]
