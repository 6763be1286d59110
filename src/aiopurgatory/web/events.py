"""The route of server-sent events: an ASGI endpoint that streams the states of a source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, final

from ..core.kit import Outcome
from ..errors import GoneError, NotFoundError, PurgatoryClosedError, PurgatoryFullError
from ..streams import EventLog
from ..waits import until_ended
from .answer import NO_STORE, Answer
from .asgi import Receive, Scope, Send, deliver
from .desk import Desk
from .logs import LogDesk, LogFeed, after_in_query
from .places import ReplacedError
from .policy import Policy
from .poll import UnreadBodyError
from .polling import LongPolling, responder_of
from .prefer import K, PollRequest
from .route import joined, path_parameter, send_answer
from .source import ReadFailedError
from .stream import EventStream, StateFeed, gone, replaced, retry

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
]
_BODY: Final = "http.response.body"
#: What ends a stream before its first event.
_REFUSALS: Final = (GoneError, NotFoundError, ReadFailedError, UnreadBodyError, PurgatoryClosedError)
_HEARTBEAT: Final = b":\n\n"


@final
class EventRoute(Generic[K]):
    """An ASGI endpoint that answers GET with a stream of server-sent events: the states of a source, or an event log.

        Starlette(routes=[Route("/events/{topic}", EventRoute(polling))])

        new EventSource("/events/orders").onmessage = event => show(event.data)

    Each event has the version as its id. Its data is the body that a long poll would get. The first event is the
    current state; another follows whenever ``polling.notify()`` is called and the version has changed. EventSource
    reconnects by itself, sends the last id as Last-Event-ID, and resumes from there.

    A stream is one operation in the purgatory, from its start to its end. It counts against ``max_pending`` and
    ``max_per_group``, but not in the result of notify(). Each stream is bounded:

    - Events: one is being sent, and the next is read when the server has taken it. Versions in between are merged.
    - Time to send an event: ``Policy.stall``. A client that does not read for that long loses its place, and its stream
      ends EXPIRED. The server keeps the connection: uvicorn logs that the answer is incomplete and, when it stops,
      waits for that client for ``timeout_graceful_shutdown`` seconds, by default for ever.
    - Age: ``Policy.max_age``. Servers do not report every disconnect. (An example is a client that has sent a second
      request behind its stream, on uvicorn with httptools and asyncio's own loop.) The places of such clients are free
      again after that time.

    How a stream ends, or fails to start:

    - The client disconnects: the stream ends at once. Middleware and handlers of other requests are not affected.
    - The purgatory closes, or the server cancels the stream: it ends at once, and the client reconnects after a random
      time within ``Policy.retry_after``, as it does when the connection breaks. (Stop signals close the purgatory.
      Hypercorn's workers get none and, on asyncio's own loop from Python 3.12 on, cancel nothing, so they stop only
      when the last client has disconnected. Use uvloop there.)
    - It reaches its age: it ends COMPLETED. EventSource reconnects, and resumes from the last id.
    - The request has a body in more than 64 parts: it ends as when the purgatory closes, since servers report a
      disconnect only after the body.
    - The same client opens a newer stream or poll of the same resource: the older stream gets an event ``replaced``
      with the reason. Close the EventSource on that event; otherwise it reconnects after a day. (The page on proxies
      has a client that does so.)
    - GoneError: the stream sends an event ``gone`` with the message, then the state from scratch. It ends if there is
      no such state, or if the source raises NotFoundError.
    - An AsyncSource fails, or does not answer within ``stall``: clients reconnect as when the purgatory closes. Before
      the first event, the answer is 503.
    - A Source raises another exception: it propagates, and the server breaks the connection.
    - No place or a closed purgatory: 503, as for a long poll. A resource that is gone altogether: 410, or 404.
      EventSource gives up at any status but 200. In ``onerror``, if ``readyState`` is CLOSED, wait and create a new
      one. Pages need this in any case, since proxies answer 502 while a server restarts.

    The stream of an EventLog has the log's own events, each once, in order, with its id, and its name if it has one.
    The last is ``end``, with the reason. A client that reconnects after it is answered 204: EventSource stops for good.
    A topic that does not exist yet is waited for, then the answer is 404. If events that the client has not seen are
    not kept any more, it gets an event ``gone`` with an empty id, then what is kept. *keys* do not apply.

    Starlette's GZipMiddleware passes events unchanged. BaseHTTPMiddleware passes them one by one but buffers one more
    event, and after ``stall`` its own task keeps waiting for a client that does not read.

    *resource*, *since*, *keys*, *client* and *group* are functions of the ASGI scope.

    Args:
        polling: a LongPolling, whose source, purgatory and policy count; or an EventLog.
        policy: for an EventLog, the times and limits of its streams; None (default): ``Policy()``.
        resource: what to stream; default: the path's only parameter.
        since: the client's version if it sent no Last-Event-ID; default: None. For an EventLog, the default is the
            ``after`` of the query.
        keys: the keys to watch; default: *resource* alone.
        client: the id of the client, as for ``LongPolling.answer()``; default: unknown.
        group: the group that its place counts against, as for ``LongPolling.answer()``; default: none.
    """

    def __init__(
        self,
        polling: LongPolling[K] | EventLog,
        *,
        policy: Policy | None = None,
        resource: Callable[[Scope], K] = path_parameter,
        since: Callable[[Scope], str | None] | None = None,
        keys: Callable[[Scope], Iterable[Hashable]] | None = None,
        client: Callable[[Scope], Hashable] | None = None,
        group: Callable[[Scope], Hashable] | None = None,
    ) -> None:
        self._streams: _StateStreams[K] | _LogStreams
        if isinstance(polling, EventLog):
            self._streams = _LogStreams(polling, policy)
            since = since or after_in_query
        else:
            if policy is not None:
                raise TypeError("policy must be left out here: the LongPolling has one")
            self._streams = _StateStreams(polling)
        self._desk = self._streams.desk
        self._resource, self._since, self._keys = resource, since, keys
        self._client, self._group = client, group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"EventRoute answers HTTP, got a scope of type {scope['type']!r}")
        if scope["method"] != "GET":
            await send_answer(Answer(405, b"", [(b"allow", b"GET")]), send)
            return
        request = self._request(scope, receive)
        try:
            stream, feed = await self._streams.open(request)
        except (GoneError, NotFoundError, PurgatoryFullError, PurgatoryClosedError) as exc:
            await send_answer(self._desk.refuse(exc), send)
            return
        try:
            last = await self._serve(stream, feed, send)
        finally:
            self._desk.close_stream(stream)
            stream.stop_counting()
            feed.close()
        if isinstance(last, Answer):
            await send_answer(last, send)
        elif last is not None:
            await self._send_last(last, send)

    def _request(self, scope: Scope, receive: Receive) -> PollRequest[K]:
        last_event_id = [value for name, value in scope["headers"] if name == b"last-event-id"][-1:]
        return PollRequest(
            self._resource(scope),
            None,
            None,
            None,
            joined(last_event_id) or (self._since and self._since(scope)),
            self._keys and self._keys(scope),
            self._client and self._client(scope),
            self._group and self._group(scope),
            receive,
        )

    async def _serve(self, stream: EventStream[K], feed: StateFeed[K] | LogFeed, send: Send) -> Answer | bytes | None:
        """Send events until *stream* ends. Returns: what to send last; None: nothing."""
        desk = self._desk
        try:
            first = await until_ended(stream, feed.first)
            failure = stream.exception() if first is None else None
            if first is None and not isinstance(failure, ReplacedError):  # a client learns that from an event
                raise failure or ReadFailedError("the source did not answer in time")
        except _REFUSALS as exc:
            return desk.refuse(exc)
        except asyncio.CancelledError:  # otherwise the server stops
            if not stream.left:
                return desk.refuse(PurgatoryClosedError("the server stops"))
            desk.count(499)
            return Answer(499, b"", [])  # nobody reads it
        if first == b"" and feed.is_over:  # S5: EventSource stops for good
            desk.count(204)
            return Answer(204, b"", [NO_STORE])
        desk.count(200)
        if first is None:
            return Answer(200, self._why_ended(stream) or b"", list(_HEADERS))
        last = await self._last_words(stream, lambda: self._send_events(stream, feed, retry(desk.policy) + first, send))
        return b"" if feed.is_over and stream.outcome is Outcome.COMPLETED else last

    async def _send_events(
        self, stream: EventStream[K], feed: StateFeed[K] | LogFeed, events: bytes, send: Send
    ) -> None:
        if not await deliver(send, {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}):
            stream.leave()
            return
        while True:
            if not await deliver(send, {"type": _BODY, "body": events or _HEARTBEAT, "more_body": True}):
                stream.leave()
                return
            if feed.is_over:
                stream.force_complete()
                return
            if not await stream.news(feed.seen):
                return
            events = await feed.next(feed.version)

    async def _send_last(self, last: bytes, send: Send) -> None:
        # The stream's operation has ended, so the loop keeps the time. A server that stops may cancel this, too.
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(self._desk.policy.stall):
                await deliver(send, {"type": _BODY, "body": last})

    async def _last_words(self, stream: EventStream[K], sending: Callable[[], Awaitable[None]]) -> bytes | None:
        """Send events until *stream* ends. Returns: what to send last; None: nothing, since nobody reads it."""
        try:
            await until_ended(stream, sending)
            return self._why_ended(stream)
        except asyncio.CancelledError:
            return None if stream.left else retry(self._desk.policy)
        except (GoneError, NotFoundError) as exc:
            return gone(exc)
        except ReadFailedError:
            return retry(self._desk.policy)

    def _why_ended(self, stream: EventStream[K]) -> bytes | None:
        failure = stream.exception()
        match failure:
            case None:  # the client did not read, or the source did not answer in time, or the stream is old
                return None if stream.expired and not stream.is_reading else retry(self._desk.policy)
            case PurgatoryClosedError() | UnreadBodyError():
                return retry(self._desk.policy)
            case ReplacedError():
                return replaced(failure)
            case GoneError() | NotFoundError():
                return gone(failure)
        raise failure


class _StateStreams(Generic[K]):
    """Opens streams of the source of *polling*."""

    def __init__(self, polling: LongPolling[K]) -> None:
        responder = responder_of(polling)
        self.desk: Final = responder.desk
        self._reader = responder.reader

    async def open(self, request: PollRequest[K]) -> tuple[EventStream[K], StateFeed[K]]:
        """Park a stream. Raises: PurgatoryFullError, PurgatoryClosedError, or what Source.version() raises."""
        if self.desk.loop is not asyncio.get_running_loop():
            await self.desk.enter()
        stream = _parked(self.desk, request, self._reader.peek)
        return stream, StateFeed(self._reader, stream, request.since)


class _LogStreams:
    """Opens streams of *log*."""

    def __init__(self, log: EventLog, policy: Policy | None) -> None:
        self._place = LogDesk(log, policy)
        self.desk: Final = self._place.desk

    async def open(self, request: PollRequest[Any]) -> tuple[EventStream[Any], LogFeed]:
        """Park a stream. Raises: PurgatoryFullError, PurgatoryClosedError, NotFoundError."""
        position = await self._place.position(request, request.since)
        try:
            stream = _parked(self.desk, request, lambda _: position.turn())
        except BaseException:
            position.leave()
            raise
        return stream, LogFeed(position, stream)


def _parked(desk: Desk, request: PollRequest[K], version: Callable[[K], str] | None) -> EventStream[K]:
    stream = EventStream(desk.purgatory, request.resource, version, desk.policy, request.client, request.group)
    try:
        desk.open_stream(stream, request.keys, request.receive)
    except BaseException:
        stream.stop_counting()
        raise
    return stream
