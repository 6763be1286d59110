"""The states of a source, as the content of polls and of event streams."""

from __future__ import annotations

from typing import Final, Generic, cast, final

from ..core.kit import NO_CHECK, AwaitedWait, core_of
from ..errors import GoneError, NotFoundError
from ..waits import read_until
from .answer import MAX_VERSION, NO_STORE, VARY, Answer, SourceBusyError, etag, tag_of
from .desk import Desk, Parked
from .poll import Content, LongPoll, ReadPoll
from .prefer import ANY, K, PollRequest
from .reads import Asked, Reader
from .stream import EventFeed, event


@final
class States(Content[K]):
    """The states of the source of *reader*, in bodies of the type *media_type*."""

    def __init__(self, desk: Desk, reader: Reader[K], media_type: bytes) -> None:
        super().__init__(desk)
        self.reader: Final = reader
        self._media_type: Final = (b"content-type", media_type)

    def feed(self, request: PollRequest[K]) -> StateFeed[K]:
        return StateFeed(self, request)

    async def answer(self, request: PollRequest[K], wait: float, parked: Parked) -> Answer:
        feed, peek = StateFeed(self, request), self.reader.peek
        feed.is_late = wait <= 0
        if peek is None:
            found = await self._read_until_news(feed, request, wait, parked)
        elif (found := await feed.first(None)) is None and wait > 0:
            poll = LongPoll(request, self.desk.policy.timeout(wait), peek, feed.version)
            self.desk.park(poll, request, parked)
            del poll, request  # an exception keeps this frame, and a parked poll no more of it than it needs
            await parked[0]
            feed.known, feed.is_late = (feed.version,), True
            found = await feed.first(None)
        return found or feed.rest()

    async def _read_until_news(
        self, feed: StateFeed[K], request: PollRequest[K], wait: float, parked: Parked
    ) -> Answer | None:
        purgatory = self.desk.purgatory
        feed.asked = Asked(feed.is_late)
        if wait <= 0 and not purgatory.is_open:
            return await feed.first(None)
        timeout = self.desk.policy.timeout(wait) if wait > 0 else 0.0  # 0: one read
        poll = ReadPoll(core_of(purgatory), request, timeout, feed.hurry)
        self.desk.park(poll, request, parked)
        del poll, request  # as above
        return await read_until(cast("AwaitedWait", parked[0]), feed.first)

    def answer_with(self, version: str, body: bytes, status: int) -> Answer:
        """Answer with *body*, of *version*."""
        return Answer(status, body, [etag(version), NO_STORE, VARY, self._media_type], version)


@final
class StateFeed(EventFeed, Generic[K]):
    """The newest state, whenever the client has another one: a poll gets the first, a stream each."""

    is_over = False
    __slots__ = (
        "_body",
        "_is_full",
        "_reader",
        "_resource",
        "_seen",
        "_states",
        "_status",
        "asked",
        "is_awaited",
        "is_late",
        "known",
        "version",
    )

    def __init__(self, states: States[K], request: PollRequest[K]) -> None:
        self.is_awaited = states.reader.peek is None
        self._states, self._reader, self._resource = states, states.reader, request.resource
        #: The versions that the client has.
        self.known = request.known()
        #: The last version that was read, and the last result of version(), which may be older. Empty: none yet.
        self.version = self._seen = ""
        #: Whether its poll has no time left; and the call of an awaited source that its poll awaits.
        self.is_late = False
        self.asked: Asked | None = None
        #: The answer to a poll without news: its status, where 304 answers an If-None-Match; whether it has the body.
        self._status = 304 if request.since is None else 204
        self._is_full = request.respond is not None
        self._body: bytes | None = None

    def has_news(self, is_checked: bool) -> bool:
        peek = self._reader.peek
        return is_checked if peek is None else peek(self._resource) != self._seen

    def start_over(self, exc: GoneError) -> None:
        self.known = ()

    async def next(self, check: int) -> bytes:
        reader, resource = self._reader, self._resource
        self._note(await reader.version(resource, check, self.asked))
        if self._has_it():
            return b""
        body = await self._read_body(check)
        if self._has_it():
            return b""
        self.known = (self.version,)
        return event(tag_of(self.version), body)

    async def first(self, poll: ReadPoll[K] | None) -> Answer | None:
        """Read the answer to a poll; *poll* waits for it. Returns: None: nothing is new. Raises: one of REFUSALS."""
        # Before the first read, checks may have missed this.
        check = poll.bell.check if poll is not None and self.version else NO_CHECK
        reader, resource = self._reader, self._resource
        try:
            is_plain = reader.peek is not None  # without an await: this is the hot path
            self._note(reader.version_now(resource) if is_plain else await reader.version(resource, check, self.asked))
        except SourceBusyError:
            # The last read could not begin. It was only to find a change without a check.
            is_called = poll is None or poll.bell.is_checked or poll.bell.is_rung
            if self.version and not (is_called or self._is_full):
                return None
            raise
        finally:
            del poll  # an exception keeps this frame
        if self._has_it() and not (self._is_full and self.is_late):
            return None
        try:
            body = await self._read_body(check)
        except (GoneError, NotFoundError) as exc:
            return self._states.desk.refusals.answer(exc)
        if not self._has_it():
            return self._states.answer_with(self.version, body, 200)
        if self._is_full:
            self._body = body
        return None

    def rest(self) -> Answer:
        """Return the answer to a poll whose time is up."""
        if self._body is not None:
            return self._states.answer_with(self.version, self._body, self._status)
        return Answer(self._status, b"", [etag(self.version), NO_STORE, VARY], self.version)

    def hurry(self) -> None:
        """The poll's time is up: its reads may queue for MAX_QUEUE seconds at most."""
        self.is_late = True
        if self.asked is not None:
            self.asked.hurry()

    def _note(self, version: str) -> None:
        self.version = self._seen = version
        if self.known is ANY:
            self.known = (version,)

    async def _read_body(self, check: int) -> bytes:
        reader, wanted = self._reader, (self._resource, self.known[0] if len(self.known) == 1 else None, self.version)
        is_plain = reader.peek is not None
        self.version, body = reader.body_now(*wanted) if is_plain else await reader.body(*wanted, check, self.asked)
        return body

    def _has_it(self) -> bool:
        """Whether the client has the last version that was read: that, or the digest of a long one."""
        version, known = self.version, self.known
        return version in known or (len(version) > MAX_VERSION and tag_of(version) in known)
