"""Event streams: their operation, from the request to the end, where it gets its events from, and their text."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from random import randint
from time import time
from typing import Any, Final, Self, final

from ..arguments import require, require_seconds
from ..core.kit import StreamWait, core_of
from ..errors import GoneError, NotFoundError, PurgatoryClosedError
from ..sse import event_text
from ..waits import UntilEnded
from .answer import NO_STORE, REFUSALS, Answer, DisconnectedError, ExpiredError, ReadFailedError, ReplacedError, as_text
from .desk import SLOTS, ClientOperation, Desk, Policy
from .request import K, PollRequest

#: The years 2000 to 2099, in seconds since the epoch.
_CENTURY: Final = (946_684_800, 4_102_444_800)
#: Seconds: the timer of a stream may fire this much early.
_ROUNDING: Final = 2e-7
#: A comment. Without an empty line: there, some clients dispatch an event, even if none was sent.
HEARTBEAT: Final = b":\n"
#: Milliseconds before a replaced client reconnects, if its page does not close the EventSource.
_A_DAY: Final = 24 * 60 * 60 * 1000
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),  # a front end that compresses would also collect events
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
]


class EventFeed(ABC):
    """What is new for one client: its poll is answered with the first, and its stream sends each."""

    __slots__ = ()

    #: Whether its reads count as the reads of an awaited condition.
    is_awaited: bool
    #: No event will follow. The stream sends its last events, and ends.
    is_over: bool

    @abstractmethod
    def has_news(self, is_checked: bool) -> bool:
        """Whether to read. Args: is_checked: a check came since the last read began."""

    def take(self) -> bytes | None:
        """Return the next event if it is at hand, and nothing else; None: call next()."""
        return None

    @abstractmethod
    async def next(self, check: int) -> bytes:
        """Read the next events, and set the attributes. Returns: the events as text, or nothing if there are none yet.

        Cancelled if the stream ends meanwhile, as when its client disconnects.

        Args: check: the newest check that called for this read; NO_CHECK: anything else did.

        Raises:
            GoneError: events are gone that the client does not have: call start_over(), and go on.
            NotFoundError: there are no events.
            ReadFailedError: they cannot be read now.
        """

    @abstractmethod
    def start_over(self, exc: GoneError) -> None:
        """next() has raised *exc*: what it returns now does not depend on what the client has."""

    def close(self) -> None:  # noqa: B027 nothing to do by default
        """The stream has ended. Idempotent."""


@final
class EventStream(StreamWait, ClientOperation[K]):
    """A stream of events: one operation from its start to its end, so that it keeps its place between two events.

    An event does not end it, but wakes its task. It has *stall* seconds to read and send an event, then *heartbeat*
    seconds to wait for the next. It expires only if an event could not be sent in time. When it is too old, it
    completes.

    Call open(). While it is open, call next(), within go_on(). At the end, call close().

    Args:
        desk: has its times, and its place.
        patience: seconds that the first read may take, in addition to *stall*.
    """

    __slots__ = (*SLOTS, "_desk", "_end", "_time", "feed", "is_open", "is_over", "is_reading")

    def __init__(self, desk: Desk, request: PollRequest[K], feed: EventFeed, patience: float = 0.0) -> None:
        core, policy = core_of(desk.purgatory), desk.policy
        super().__init__(core, policy.stall + patience, inf, policy.stall, partial(feed.has_news, True))
        self.place(request)
        self._desk: Final = desk
        self.feed: Final = feed
        self._time = core.loop.time
        #: By the purgatory's clock: when it is old.
        self._end = self._time() + min(_left_until(request.until), policy.age())
        self.is_reading = False
        #: Whether it has a place; and whether nothing follows the last bytes to send.
        self.is_open = self.is_over = False

    async def open(self, request: PollRequest[K]) -> Answer:
        """Park this, and read its first events. Returns: the answer; if is_open, more is to follow.

        If it raises, it is not open.
        """
        desk, follows = self._desk, False
        try:
            first = await self._first(request)
            if first or not self.feed.is_over or self.is_old():  # EventSource reconnects after any status but 204
                first, follows = retry(desk.policy) + first, True
        except ReplacedError as exc:  # a client learns that from an event
            first = replaced(exc.with_traceback(None))  # which keeps this
        except REFUSALS as exc:
            return desk.refuse(exc)
        finally:
            if not follows:
                self.close()
        answer = Answer(200, first, list(_HEADERS)) if first else Answer(204, b"", [NO_STORE])
        desk.answered[answer.status] += 1
        return answer

    async def _first(self, request: PollRequest[K]) -> bytes:
        """Park this, and return its first events. Raises: why it has ended."""
        if self.is_old():
            raise ExpiredError("the login has ended: until= is in the past")
        self._desk.streams += 1
        self.is_open = True
        self._desk.place(self, request)
        if request.listen is not None:
            self.listen(request.listen)
        first: bytes | None = None
        with UntilEnded(self):
            first = await self.read()
        if first is None:
            raise self._reason()
        return first

    async def go_on(self, awaitable: Awaitable[bytes | None]) -> bytes | None:
        """Await *awaitable* until this ends.

        Returns: what that returns; if this is over, the last bytes to send. None: there are none, since nobody reads.
        """
        found = None
        try:
            with UntilEnded(self):
                found = await awaitable
        except (GoneError, NotFoundError, ReadFailedError) as exc:
            return self.last_words(exc)
        return found or self.last_words()

    def last_words(self, failure: BaseException | None = None) -> bytes | None:
        """Return the last bytes to send; None: there are none. Raises: the source's error.

        Args: failure: of its last read.
        """
        self.is_over = True
        reason = self._reason() if failure is None or self.done() else failure
        match reason:
            case DisconnectedError():
                return None
            case ReplacedError():
                return replaced(reason)
            case GoneError() | NotFoundError():
                return gone(reason)
        if not isinstance(reason, REFUSALS):
            raise reason
        return b"" if self.feed.is_over else retry(self._desk.policy)

    def _reason(self) -> BaseException:
        """Why this has ended, or its task is cancelled."""
        if self.left:
            return DisconnectedError()
        if self.expired:  # or else the client has not read in time
            return ReadFailedError("the source did not answer in time") if self.is_reading else DisconnectedError()
        failure = self.exception() if self.done() and not self.cancelled() else None
        return failure or PurgatoryClosedError("the server stops")

    def close(self) -> None:
        """Release the place. A second call does nothing."""
        self.feed.close()
        if self.is_open:
            self.is_open = False
            self._desk.streams -= 1
            self._desk.leave(self)

    async def read(self) -> bytes:
        """Return the next events, or nothing if there are none yet."""
        self.is_reading = True
        check, events = self.take_call(), b""  # this read may miss later changes
        try:
            events = await self.feed.next(check)
        except GoneError as exc:
            self.feed.start_over(exc)
            events = gone(exc) + await self.feed.next(check)
        finally:
            if self.feed.is_awaited:
                self.bell.count(bool(events))
        self.is_reading = False
        return b"" if self.is_old() else events

    async def next(self) -> bytes | None:
        """Wait for the next events, or until a heartbeat is due. Returns: None if this is too old, or over.

        Called when the last events have been sent.
        """
        feed, left = self.feed, self._end - self._time()
        if left <= _ROUNDING or feed.is_over:
            self.force_complete()
        elif feed.has_news(self.bell.is_rung):
            self.begin_step()
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        elif (woken := self.wait(min(self._desk.policy.heartbeat, left))) is not None:
            await woken
            if self.is_old():
                self.force_complete()
        if self.done():
            return None
        return feed.take() or await self.read() or HEARTBEAT

    def is_old(self) -> bool:
        """Whether its age or its login is over: nothing more is delivered."""
        return self._end - self._time() <= _ROUNDING


@final
class EventAnswer:
    """An HTTP answer with a body to iterate. It has a place in the purgatory until its iteration ends.

    A refusal has its status and a short body, so a handler treats it like any other. The place is also free again when
    the iterator is closed, or nothing refers to it. The same holds if its client takes no event for ``Policy.stall``
    seconds.

    Attributes:
        status: 200; 401, 404, 410, 413 or 503 for a refusal; 499: the client has left.
        raw_headers: pairs of bytes, names in lower case.
    """

    __slots__ = ("_chunk", "_is_over", "_loop", "_stream", "raw_headers", "status")

    def __init__(self, stream: EventStream[Any], answer: Answer) -> None:
        self.status: int = answer.status
        self.raw_headers = answer.raw_headers
        self._stream = stream
        #: The next chunk to return; empty: none is there yet.
        self._chunk = answer.body
        self._is_over = not stream.is_open
        self._loop = asyncio.get_running_loop()
        if stream.is_open:
            stream.add_done_callback(lambda _: stream.close())

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, for frameworks that need them so."""
        return as_text(self.raw_headers)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next events, or a heartbeat. To be called when the last ones have been sent."""
        chunk, self._chunk = self._chunk, b""
        if not chunk and not self._is_over:
            self._is_over = True  # if it raises
            try:
                chunk = await self._stream.go_on(self._stream.next()) or b""
                self._is_over = self._stream.is_over
            finally:
                if self._is_over:
                    self._stream.close()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """End the iteration, and release the place. A second call does nothing."""
        self._chunk, self._is_over = b"", True
        self._stream.close()

    def __del__(self) -> None:
        if self._stream.is_open:  # in any thread
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stream.close)


def _left_until(until: float | None) -> float:
    """Return the seconds until the time *until*. Raises: TypeError, ValueError: it is no time of this century."""
    if until is None:
        return inf
    require_seconds("until", until)
    rule = "seconds since the epoch, in this century (milliseconds are no seconds; None: no limit)"
    require(_CENTURY[0] <= until < _CENTURY[1], "until", rule, until)
    return until - time()


def retry(policy: Policy) -> bytes:
    """Have the client reconnect after a random time within ``Policy.retry_after``."""
    low, high = policy.retry_after
    return b"retry: %d\n" % randint(low * 1000, high * 1000)


def replaced(exc: Exception) -> bytes:
    """The event of a stream that a newer one has replaced."""
    return b"retry: %d\n%b" % (_A_DAY, event_text(str(exc), "replaced"))


@lru_cache(1)
def event(version: str, body: bytes) -> bytes:
    """The last event is cached: many streams send the same."""
    return event_text(body, event_id=version)


def gone(exc: Exception) -> bytes:
    """With an empty id, so that the client does not resume from its version when it reconnects."""
    return event_text(str(exc), "gone", "")
