"""The events of a log, as the content of polls and of event streams. Only apps that have a log load this."""

from __future__ import annotations

import json
from math import inf
from typing import Any, Final, final

from ..core.kit import core_of
from ..errors import GoneError, NotFoundError
from ..streams import Event, EventLog, StoreError
from ..streams.log import position_in
from ..streams.position import Position
from ..streams.tail import SPREAD
from .answer import NO_STORE, VARY, Answer, Outages, resume_from
from .desk import Desk, Parked, Policy
from .poll import Content, LongPoll
from .request import PollRequest, entity_tags
from .stream import EventFeed

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
        super().__init__(Desk(log.purgatory, policy))
        self.log = log
        # An unknown topic is waited for, then there is a 404 to send. If it is an empty one, nothing is waited for.
        self.patience = 0.0 if log.unknown_timeout == inf else log.unknown_timeout * (1 + 2 * SPREAD)
        self.outages: Final = Outages(f"the log {log.name!r}")

    def feed(self, request: PollRequest[Any]) -> LogFeed:
        return LogFeed(self, request)

    async def answer(self, request: PollRequest[Any], wait: float, parked: Parked) -> Answer:
        """Answer with the events after the client's; 204: there will be none.

        404 comes at the end of the poll's wait, or of the log's ``unknown_timeout`` if that is shorter, and not None.
        """
        purgatory, feed = self.desk.purgatory, LogFeed(self, request)
        try:
            position = await feed.open()
            time = core_of(purgatory).loop.time
            until = time() + self.desk.policy.timeout(wait)
            # When the poll ends: later than its own wait if the first read of its topic needs the time.
            end = until if position.is_read else max(until, time() + FIRST_READ)

            def has_answer(_: Any) -> bool:
                nonlocal end
                if end > until and position.is_read:
                    end = until
                    purgatory.reschedule(parked[-1], end - time())
                return position.has_answer()

            is_over = False
            while (found := await feed.first(position)) is None and not is_over and (left := end - time()) > 0.0:
                if parked:  # it has to wait again: the server was down
                    self.desk.leave(parked.pop())
                poll = LongPoll(request, left, has_answer, False)
                self.desk.park(poll, request, parked)
                del poll  # an exception keeps this frame
                await parked[0]
                is_over = parked[0].expired  # by its deadline, or by expire_all()
            return found or feed.rest(position)
        except StoreError as exc:
            raise self.outages.failed(exc) from exc
        finally:
            feed.close()


@final
class LogFeed(EventFeed):
    """The events that a client does not have, each with the log's own id. It reads memory, but for older events."""

    is_awaited = False
    __slots__ = ("_after", "_events", "_position", "_status", "_topic", "is_over")

    def __init__(self, events: LogEvents, request: PollRequest[Any]) -> None:
        self.is_over = False
        self._events, self._topic = events, request.resource
        tags = entity_tags(request.if_none_match or "")
        tag = tags[0] if len(tags) == 1 else None
        self._after = tag or request.since  # that may be the ``after`` of an address that is polled again and again
        #: The status of a poll's answer without events.
        self._status = 200 if tag is None else 304
        self._position: Position | None = None

    async def open(self) -> Position:
        """Join the topic.

        Raises:
            TypeError: the topic is no str, as with a path's parameter of another type. No client can mend that.
            NotFoundError: no topic can have that name.
            PurgatoryClosedError; errors of ``EventLog.start()``.
        """
        topic, log = self._topic, self._events.log
        if not isinstance(topic, str):
            raise TypeError(
                f"resource must be a str, the topic of the log {log.name!r}, got {topic!r}; a path's parameter must "
                "have no converter, as in /runs/{run}, or pass resource=lambda scope: str(...)"
            )
        if not 1 <= len(topic) <= _MAX_TOPIC or "\0" in topic:
            raise NotFoundError("there is no such topic")
        self._position = await position_in(log, topic, self._after)
        return self._position

    def has_news(self, is_checked: bool) -> bool:
        return self._position is not None and self._position.has_news()

    def take(self) -> bytes | None:
        event = None if self._position is None else self._position.take()
        return None if event is None else event.sse()

    async def next(self, check: int) -> bytes:
        position = self._position
        try:
            if position is None:
                position = await self.open()
                await position.until_known(FIRST_READ)  # then there are heartbeats
            events = await position.next()
        except StoreError as exc:
            raise self._events.outages.failed(exc) from exc
        self.is_over = position.is_over
        return b"".join([event.sse() for event in events])

    def start_over(self, exc: GoneError) -> None:  # S8
        assert self._position is not None
        self._position.go_on(exc)

    def close(self) -> None:
        if self._position is not None:
            self._position.leave()

    # polls

    async def first(self, position: Position) -> Answer | None:
        """Read the answer to a poll. Returns: None: nothing is new. Raises: GoneError, NotFoundError, StoreError."""
        events = await position.next()
        if events:
            return _listed(position, events)
        # Without an ETag: there is nothing to ask for any more.
        return Answer(204, b"", [NO_STORE, VARY], position.id or "") if position.is_over else None

    def rest(self, position: Position) -> Answer:
        """Return the answer to a poll whose time is up. Raises: NotFoundError, StoreError."""
        position.require_topic()
        return _listed(position, [], self._status)


def _listed(position: Position, events: list[Event], status: int = 200) -> Answer:
    """Answer with *events*, and with the last id as the ETag. Args: status: 304 leaves them out."""
    resume = resume_from(position.id)  # that may be the client's own, and anything
    version = (position.id or "") if resume else ""
    headers = [*resume, NO_STORE, VARY]
    if status == 304:
        return Answer(304, b"", headers, version)
    listed = [{"id": each.id, "name": each.name, "data": each.data, "is_end": each.is_end} for each in events]
    return Answer(200, json.dumps(listed, separators=(",", ":")).encode(), [*headers, _JSON], version)
