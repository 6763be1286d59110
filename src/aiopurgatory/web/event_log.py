"""The events of a log, as the content of polls and of event streams. Only apps that have a log load this."""

from __future__ import annotations

import json
from math import inf
from typing import Any, Final, final

from ..core.kit import core_of
from ..errors import GoneError, NotFoundError
from ..purgatory import Purgatory
from ..streams import Event, EventLog, StoreError
from ..streams.log import position_in
from ..streams.position import Position
from ..streams.tail import SPREAD
from .answer import NO_STORE, VARY, Answer, ReadFailedError, resume_from
from .answering import Content
from .desk import Desk
from .policy import Policy
from .poll import LogPoll, Parked
from .prefer import PollRequest, entity_tags
from .reads import Outages
from .stream import EventFeed, EventStream, gone

_JSON: Final = (b"content-type", b"application/json")
#: The most characters of a topic. Longer ones cannot exist.
_MAX_TOPIC: Final = 200
#: Seconds that the first read of a topic may take before a stream begins without it, or a poll with a short wait ends.
FIRST_READ: Final = 1.0


@final
class LogEvents(Content[Any]):
    """The events of *log*. Each route has a desk of its own. Args: policy: None: the default one."""

    has_ids = True

    def __init__(self, log: EventLog, policy: Policy | None) -> None:
        super().__init__(Desk(log.purgatory, policy or Policy(), adds_keys=True))
        self.log = log
        self._outages = Outages(f"the log {log.name!r}")

    def failed(self, exc: StoreError) -> ReadFailedError:
        """Log *exc*. Returns: what clients are told: not where the server is."""
        self._outages.note(exc)
        return ReadFailedError("the events cannot be read now")

    async def answer(self, request: PollRequest[Any], wait: float, parked: Parked) -> Answer:
        """Answer with the events after the client's; 204: there will be none.

        404 comes at the end of the poll's wait, or of the log's ``unknown_timeout`` if that is shorter, and not None.
        """
        position: Position | None = None
        tag = _only_tag(request)  # newer than the ``after`` of an address that is polled again and again
        try:
            position = await _position(self.log, request.resource, tag or request.since)
            waiting = LogWait(self.desk.purgatory, position, self.desk.policy.timeout(wait) if wait > 0 else 0.0)
            is_over = False
            while (found := await self._read(position)) is None and not is_over and (left := waiting.left()) > 0.0:
                if parked:  # it has to wait again: the server was down
                    self.desk.leave(parked.pop())
                poll = LogPoll(request, left, waiting.try_to_end)
                self.desk.park(poll, request, parked)
                del poll  # an exception keeps this frame
                await parked[0]
                is_over = parked[0].expired  # by its deadline, or by expire_all()
            if found is None:
                position.require_topic()
                found = _listed(position, [], 200 if tag is None else 304)
            return found
        except StoreError as exc:
            raise self.failed(exc) from exc
        finally:
            if position is not None:
                position.leave()

    async def _read(self, position: Position) -> Answer | None:
        try:
            events = await position.next()
        except (GoneError, NotFoundError) as exc:
            return self.desk.refusals.answer(exc)
        if events:
            return _listed(position, events)
        # Without an ETag: there is nothing to ask for any more.
        return Answer(204, b"", [NO_STORE, VARY], position.id or "") if position.is_over else None

    def stream_of(self, request: PollRequest[Any]) -> EventStream[Any]:
        feed = LogFeed(self, request.resource, request.since)
        # An unknown topic is waited for, then there is a 404 to send. If it is an empty one, nothing is waited for.
        patience = self.log.unknown_timeout
        patience = 0.0 if patience == inf else patience * (1 + 2 * SPREAD)
        return EventStream(self.desk, request, feed, patience)


@final
class LogWait:
    """The condition of a poll: *position* has an answer.

    Args: wait: seconds that the poll waits. If its topic was not read yet, it has FIRST_READ for that.
    """

    __slots__ = ("_end", "_position", "_purgatory", "_until")

    def __init__(self, purgatory: Purgatory, position: Position, wait: float) -> None:
        self._purgatory, self._position = purgatory, position
        #: By the purgatory's clock: when the poll's own wait is over; and when the poll ends, which is later if the
        #: first read needs the time.
        self._until = core_of(purgatory).loop.time() + wait
        self._end = self._until if position.is_read else self._until + max(FIRST_READ - wait, 0.0)

    def left(self) -> float:
        """Seconds until the poll ends."""
        return self._end - core_of(self._purgatory).loop.time()

    def try_to_end(self, poll: LogPoll) -> bool:
        if self._end > self._until and self._position.is_read:
            self._end = self._until
            self._purgatory.reschedule(poll, self.left())
        return self._position.has_answer() and poll.force_complete()


@final
class LogFeed(EventFeed):
    """Each event has the log's own id. It reads memory, but for older events."""

    __slots__ = ("_events", "_position", "_topic")

    def __init__(self, events: LogEvents, topic: Any, after: str | None) -> None:
        super().__init__(after, is_awaited=False)
        self._events, self._topic = events, topic
        self._position: Position | None = None

    def has_news(self, is_checked: bool) -> bool:
        return self._position is not None and self._position.has_news()

    def take(self) -> bytes | None:
        position = self._position
        event = None if position is None else position.take()
        if event is None:
            return None
        self.version = event.id
        return event.sse()

    async def next(self, check: int) -> bytes:
        position = self._position
        try:
            if position is None:
                position = self._position = await _position(self._events.log, self._topic, self.version)
                await position.until_known(FIRST_READ)  # then there are heartbeats
            events = b"".join([event.sse() for event in await position.next()])
        except GoneError as exc:  # S8
            assert position is not None
            position.go_on(exc)
            events = gone(exc)
        except StoreError as exc:
            raise self._events.failed(exc) from exc
        self.version, self.is_over = position.id, position.is_over
        return events

    def close(self) -> None:
        if self._position is not None:
            self._position.leave()


async def _position(log: EventLog, topic: Any, after: str | None) -> Position:
    """Return the position of a client in *topic*.

    Raises:
        TypeError: *topic* is no str, as with a path's parameter of another type. No client can mend that.
        NotFoundError: no topic can have that name.
        PurgatoryClosedError; errors of ``EventLog.start()``.
    """
    if not isinstance(topic, str):
        raise TypeError(
            f"resource must be a str, the topic of the log {log.name!r}, got {topic!r}; a path's parameter must have "
            "no converter, as in /runs/{run}, or pass resource=lambda scope: str(...)"
        )
    if not 1 <= len(topic) <= _MAX_TOPIC or "\0" in topic:
        raise NotFoundError("there is no such topic")
    return await position_in(log, topic, after)


def _only_tag(request: PollRequest[Any]) -> str | None:
    """The id that the client sent as If-None-Match."""
    tags = entity_tags(request.if_none_match or "")
    return tags[0] if len(tags) == 1 else None


def _listed(position: Position, events: list[Event], status: int = 200) -> Answer:
    """Answer with *events*, and with the last id as the ETag. Args: status: 304 leaves them out."""
    resume = resume_from(position.id)  # that may be the client's own, and anything
    version = (position.id or "") if resume else ""
    headers = [*resume, NO_STORE, VARY]
    if status == 304:
        return Answer(304, b"", headers, version)
    listed = [{"id": each.id, "name": each.name, "data": each.data, "is_end": each.is_end} for each in events]
    return Answer(200, json.dumps(listed, separators=(",", ":")).encode(), [*headers, _JSON], version)
