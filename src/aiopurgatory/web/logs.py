"""Event streams and long polls of an event log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from math import ceil
from typing import Any, Final, final
from urllib.parse import unquote_plus
from weakref import WeakKeyDictionary

from ..cancellations import cancellations
from ..clock import running_loop
from ..errors import GoneError, NotFoundError, PurgatoryClosedError
from ..streams import Event, EventLog, StoreError
from ..streams.log import position_in
from ..streams.position import Position
from .answer import NO_STORE, REFUSALS, VARY, Answer
from .asgi import Scope
from .desk import Desk
from .policy import Policy
from .poll import LongPoll
from .prefer import MAX_FIELD, PollRequest, entity_tags, wait_in_query, wait_preference
from .signals import SERVER_STOPS
from .source import ReadFailedError
from .sse import gone
from .stream import QuickStream
from .streamed import Streamed

_JSON: Final = (b"content-type", b"application/json")
#: The most characters of a topic. Longer ones cannot exist.
_MAX_TOPIC: Final = 200
#: Seconds that the first read of a topic may take, however short the wait of its poll is.
_FIRST_READ: Final = 1.0


_logger: Final = logging.getLogger("aiopurgatory")
#: When the failure of a log was last logged, by its loop's clock.
_logged_at: Final = WeakKeyDictionary[EventLog, float]()
#: Seconds until another failure of the log is logged.
_LOG_PAUSE: Final = 60.0


@final
class LogStreams(Streamed[Any]):
    """The events of *log*. Args: policy: None: the default one."""

    def __init__(self, log: EventLog, policy: Policy | None) -> None:
        super().__init__(_desk_of(log, policy))
        self._log = log

    def open(self, request: PollRequest[Any]) -> tuple[QuickStream[Any], LogFeed]:
        feed = LogFeed(self._log, request.resource, request.since)
        # An unknown topic is waited for, then there is a 404 to send.
        return QuickStream(request, feed, self.desk.purgatory, self.desk.policy, self._log.unknown_timeout), feed


@final
class LogFeed:
    """Each event has the log's own id. Args: after: the id of the last event that the client has."""

    __slots__ = ("_log", "_position", "_topic", "is_over", "seen", "version")

    def __init__(self, log: EventLog, topic: Any, after: str | None) -> None:
        self._log, self._topic = log, topic
        self._position: Position | None = None
        self.version = after
        self.seen = ""
        self.is_over = False

    def has_news(self) -> bool:
        """Whether there is something to read."""
        return self._position is not None and self._position.has_news()

    def take(self) -> bytes | None:
        """Return the next event if there is one, and nothing else; None: call next()."""
        position = self._position
        event = None if position is None else position.take()
        if event is None:
            return None
        self.version = event.id
        return event.sse()

    async def next(self, after: str | None, /) -> bytes:
        position = self._position
        try:
            if position is None:
                position = self._position = await _position(self._log, self._topic, after)
                await position.until_known()
            events = b"".join([event.sse() for event in await position.next()])
        except GoneError as exc:  # S8
            assert position is not None
            position.go_on(exc)
            events = gone(exc)
        except StoreError as exc:
            raise _read_failed(self._log, exc) from exc
        self.version, self.is_over = position.id, position.is_over
        return events

    def close(self) -> None:
        if self._position is not None:
            self._position.leave()


@final
class LogResponder:
    """Answers long polls of *log*."""

    def __init__(self, log: EventLog, policy: Policy | None) -> None:
        self._log = log
        self.desk: Final = _desk_of(log, policy)

    async def respond(self, request: PollRequest[Any]) -> Answer:
        """Answer with the events after the client's; 204: there will be none.

        404 comes at the end of the poll's wait, or of the log's ``unknown_timeout`` if that is shorter.
        """
        desk = self.desk
        poll: LongPoll[Any] | None = None
        position: Position | None = None
        before = cancellations()
        try:
            preferred = wait_preference(request.prefer) if request.prefer and request.wait is None else None
            wait = desk.policy.applied(preferred if request.wait is None else wait_in_query(request.wait))
            after = request.since or _only_tag(request)
            if desk.loop is not running_loop():
                await desk.enter()
            position = await _position(self._log, request.resource, after)
            turn = position.turn
            version: Callable[[Any], str] = lambda _: turn()  # noqa: E731
            left = desk.policy.timeout(wait) if wait > 0 else 0.0
            now = asyncio.get_running_loop().time()
            until, first = now + left, now + max(left, _FIRST_READ)
            while not (events := await position.next()) and not position.is_over:
                left = (until if position.is_read else first) - asyncio.get_running_loop().time()
                if left <= 0:
                    position.require_topic()
                    break
                if poll is not None:
                    desk.leave(poll)
                poll = LongPoll(request.resource, version, turn(), left, request.client, request.group)
                desk.park_poll(poll, request.keys, request.receive)
                await poll  # it also ends when the topic is there, but has nothing new
            answer = _answer(request, position, events)
            if preferred is not None:
                answer.raw_headers.append((b"preference-applied", b"wait=%d" % ceil(wait)))
        except asyncio.CancelledError as exc:
            if exc.args == SERVER_STOPS:
                answer = desk.refusals.answer(PurgatoryClosedError("the server stops"))
            elif poll is None or not poll.left or cancellations() > before:
                raise
            else:
                answer = Answer(499, b"", [])  # nobody reads it
        except StoreError as exc:
            answer = desk.refusals.answer(_read_failed(self._log, exc))
        except REFUSALS as exc:
            answer = desk.refusals.answer(exc)
            if isinstance(exc, GoneError) and exc.after is not None:
                answer.raw_headers.append((b"etag", b'"%b"' % exc.after.encode()))
        finally:
            if poll is not None:
                desk.leave(poll)
            if position is not None:
                position.leave()
            poll = None  # an exception keeps this frame
        desk.count(answer.status)
        return answer


def _read_failed(log: EventLog, exc: StoreError) -> ReadFailedError:
    """Log *exc*, at most once a minute. Returns: what clients are told: not where the server is."""
    now = asyncio.get_running_loop().time()
    if now - _logged_at.get(log, -_LOG_PAUSE) >= _LOG_PAUSE:
        _logged_at[log] = now
        _logger.warning("log %r: clients are answered 503: %s", log.name, exc)
    return ReadFailedError("the events cannot be read now")


def _desk_of(log: EventLog, policy: Policy | None) -> Desk:
    """Where the clients of one route wait."""
    return Desk(None, log.purgatory, policy or Policy(), None, (), stop_signals=True)


async def _position(log: EventLog, topic: Any, after: str | None) -> Position:
    """Return the position of a client in *topic*.

    Raises: NotFoundError: no topic can have that name; PurgatoryClosedError; errors of ``EventLog.start()``.
    """
    if not isinstance(topic, str) or not 1 <= len(topic) <= _MAX_TOPIC or "\0" in topic:
        raise NotFoundError("there is no such topic")
    return await position_in(log, topic, after)


def _only_tag(request: PollRequest[Any]) -> str | None:
    """The id that the client sent as If-None-Match."""
    tags = entity_tags(request.if_none_match or "")
    return tags[0] if len(tags) == 1 else None


def _answer(request: PollRequest[Any], position: Position, events: list[Event]) -> Answer:
    tag = [] if position.id is None else [(b"etag", b'"%b"' % position.id.encode())]
    headers = [*tag, NO_STORE, VARY]
    if events:
        listed = [{"id": each.id, "name": each.name, "data": each.data, "is_end": each.is_end} for each in events]
        return Answer(200, json.dumps(listed, separators=(",", ":")).encode(), [*headers, _JSON])
    if position.is_over:
        return Answer(204, b"", headers)
    return Answer(304, b"", headers) if request.since is None else Answer(200, b"[]", [*headers, _JSON])


def after_in_query(scope: Scope) -> str | None:
    """Return the ``after`` of the query: the id of the last event that a page had before it was loaded again."""
    _, found, rest = (b"&" + scope["query_string"]).partition(b"&after=")
    return unquote_plus(rest.partition(b"&")[0][:MAX_FIELD].decode("latin-1")) or None if found else None
