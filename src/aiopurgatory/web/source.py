"""Sources: the state that clients poll, as the content of polls and of event streams."""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from typing import Final, Generic, Protocol, TypeVar, cast, final

from ..core.kit import NO_CHECK, AwaitedWait, core_of
from ..errors import GoneError
from ..waits import read_until
from .answer import MAX_VERSION, NO_STORE, VARY, Answer, RawHeader, SourceBusyError, etag, tag_of
from .desk import Desk, Parked
from .poll import Content, LongPoll, ReadPoll
from .reads import Asking, Reader, State
from .request import ANY, K, PollRequest, entity_tags
from .stream import EventFeed, event

K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Source(Protocol[K_contra]):
    """The polled state. Both methods are plain functions, or both are ``async def``.

    What they return is for all clients that want the same. So they are called in an empty context, without the context
    variables of any request: ``user.get()`` raises LookupError there. A user, or a tenant, belongs into the resource:
    ``resource=lambda scope: (user_of(scope), ...)``.

    Plain methods read memory. They are called in the event loop and must not block it.

    Make them ``async def`` if reading takes I/O, as in a database. Then polls and streams that want the same share a
    call, unless it may have missed a change. All that one notification wakes share the calls that begin after it, in
    however many slices they are woken: 10,000 polls of a topic make two calls. If notifications of the same key come
    between the slices, each slice may make calls of its own. A poll that has just come, and one at the end of its time,
    share only calls that have not begun.

    Give each such call a timeout: a poll waits for a call that has begun, even beyond its own wait. A call must begin
    within that wait, or within 0.5 s if the wait is over. Otherwise the poll is answered 304 if it has read the version
    before and no check came since, or 503 if not. A poll that ends because its client leaves, or because the purgatory
    closes, does not wait for its call. A call that no poll waits for any more is cancelled. A poll that may not wait
    also takes a place in the purgatory while it reads, and a closed one refuses it.

    An exception of an ``async def`` answers the polls of that call with 503. Exceptions that stand for an answer are
    raised, as from plain methods: GoneError, NotFoundError, HTTPException of Starlette, FastAPI, Litestar, Quart or
    aiohttp, and Http404 and PermissionDenied of Django. The first failure is logged with its traceback, then one a
    minute, with their number.
    """

    def version(self, resource: K_contra, /) -> str | Awaitable[str]:
        """Return the version of *resource*: printable ASCII without spaces and quotes.

        It becomes the ETag, and the client resumes from it. One of more than 1,000 characters, such as for many
        resources, becomes a digest there. One version must never stand for two states: if your counters restart with
        the process, add a random prefix. Keep it cheap: it is called on every check. Make an ``async def`` one short
        query.

        Raises: NotFoundError: there is no such resource.
        """
        ...

    def read(self, resource: K_contra, since: str | None, version: str, /) -> bytes | State | Awaitable[bytes | State]:
        """Return the body for a client at version *since*, when the state is at *version*.

        If the state may change between version() and read(), return ``(version, body)``: the version that the body is
        of, for instance from one query. Otherwise the ETag may be older than the body, and the client gets a part
        twice.

        Called once for all clients that want the same. If *since* or ``str(resource)`` is longer than 200 characters,
        called for each: the body is not cached.

        Args: since: as the client sent it, so it may be anything; None: the client sent no version, or several. Of a
            long version, a client has the digest, unless the version comes by a function of the route.
        Raises: GoneError: a client cannot resume from *since*. NotFoundError: there is no such resource.
        """
        ...


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
            timeout = self.desk.policy.timeout(wait)  # 0: one read
            read = ReadPoll(core_of(self.desk.purgatory), request, timeout, feed.hurry)
            self.desk.park(read, request, parked)
            del read, request  # an exception keeps this frame, and a parked poll no more of it than it needs
            is_new = await read_until(cast("AwaitedWait", parked[0]), feed.read_again)
        elif not (is_new := await feed.read(NO_CHECK)) and wait > 0:
            poll = LongPoll(request, self.desk.policy.timeout(wait), peek, feed.version)
            self.desk.park(poll, request, parked)
            del poll, request  # as above
            await parked[0]
            feed.known, feed.is_late = (feed.version,), True
            is_new = await feed.read(NO_CHECK)
        return feed.answer(is_new, self._media_type)


@final
class StateFeed(EventFeed, Asking, Generic[K]):
    """The newest state, whenever the client has another one: a poll gets the first, a stream each."""

    is_over = False
    __slots__ = ("_body", "_is_full", "_reader", "_resource", "_seen", "_status", "is_awaited", "known", "version")

    def __init__(self, states: States[K], request: PollRequest[K]) -> None:
        Asking.__init__(self)
        self.is_awaited = states.reader.peek is None
        self._reader, self._resource = states.reader, request.resource
        #: The versions that the client has.
        self.known = entity_tags(request.if_none_match or "") if request.since is None else (request.since,)
        #: The last version that was read, and the last result of version(), which may be older. Empty: none yet.
        self.version = self._seen = ""
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
        if not await self.read(check):
            return b""
        body, self._body = self._body or b"", None
        self.known = (self.version,)
        return event(tag_of(self.version), body)

    async def read(self, check: int) -> bool:
        """Read the version, and the body if the answer has one. Returns: whether the client does not have it."""
        reader, resource, is_awaited = self._reader, self._resource, self.is_awaited
        # Without an await if it is plain: this is the hot path.
        version = await reader.version(resource, check, self) if is_awaited else reader.version_now(resource)
        self.version = self._seen = version
        if self.known is ANY:
            self.known = (version,)
        if self._has_it() and not (self._is_full and self.is_late):
            return False
        wanted = (resource, self.known[0] if len(self.known) == 1 else None, version)
        found = await reader.body(wanted, check, self) if is_awaited else reader.body_now(wanted)
        self.version, self._body = found
        return not self._has_it()

    async def read_again(self, poll: ReadPoll[K]) -> bool | None:
        """Read for *poll*, which waits for it. Returns: None: there is nothing new."""
        # Before the first read, checks may have missed this.
        check = poll.bell.check if self.version else NO_CHECK
        try:
            return await self.read(check) or None
        except SourceBusyError:
            # The last read could not begin. It was only to find a change without a check.
            is_called = poll.bell.is_checked or poll.bell.is_rung
            if is_called or self._is_full or not (self.version and self._has_it()):
                raise
            return None
        finally:
            del poll  # an exception keeps this frame

    def answer(self, is_new: bool | None, media_type: RawHeader) -> Answer:
        """Return the answer to a poll, of what was read last."""
        headers, body = [etag(self.version), NO_STORE, VARY], self._body if is_new or self._is_full else None
        if body is not None:
            headers.append(media_type)
        return Answer(200 if is_new else self._status, body or b"", headers, self.version)

    def _has_it(self) -> bool:
        """Whether the client has the last version that was read: that, or the digest of a long one."""
        version, known = self.version, self.known
        return version in known or (len(version) > MAX_VERSION and tag_of(version) in known)
