"""Event streams: their operation, where it gets its events from, and how these are written."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache, partial
from math import inf
from random import randint
from time import time
from typing import Final, Protocol, final

from ..arguments import require_seconds
from ..core.kit import Core
from .policy import Policy
from .poll import ClientOperation
from .prefer import K, PollRequest

#: Seconds: the timer of a stream may fire this much early.
_ROUNDING: Final = 2e-7
#: A comment. Without an empty line: there, some clients dispatch an event, even if none was sent.
HEARTBEAT: Final = b":\n"
#: Milliseconds before a replaced client reconnects, if its page does not close the EventSource.
_A_DAY: Final = 24 * 60 * 60 * 1000
#: Line ends; ``bytes.splitlines()`` would drop the last one.
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class EventFeed(Protocol):
    """The events of one stream.

    Attributes:
        version: the id of the last event: the client resumes from it. None: it has none.
        is_awaited: its reads count as those of an awaited condition.
        is_over: no event will follow. The stream sends its last events, and ends.
    """

    version: str | None
    is_awaited: bool
    is_over: bool

    def has_news(self, is_checked: bool) -> bool:
        """Whether to read. Args: is_checked: a check came since the last read began."""
        ...

    def take(self) -> bytes | None:
        """Return the next event if it is at hand, and nothing else; None: call next()."""
        ...

    async def next(self, check: int) -> bytes:
        """Read the next events, and set the attributes. Returns: the events as text, or nothing if there are none yet.

        Cancelled if the stream ends meanwhile, as when its client disconnects.

        Args: check: the newest check that called for this read; NO_CHECK: anything else did.

        Raises:
            GoneError, NotFoundError: there are no events for this client, and no others to go on with.
            ReadFailedError: they cannot be read now.
        """
        ...

    def close(self) -> None:
        """The stream has ended. Idempotent."""
        ...


@final
class EventStream(ClientOperation[K]):
    """A stream of events: one operation from its start to its end, so that it keeps its place between two events.

    An event does not end it, but wakes its task. It has *stall* seconds to read and send an event, then *heartbeat*
    seconds to wait for the next. It expires only if an event could not be sent in time. When it is too old, it
    completes.

    Args:
        policy: has its times.
        patience: seconds that the first read may take, in addition to *stall*.
    """

    __slots__ = ("_end", "_heartbeat", "_time", "feed", "is_reading")

    def __init__(
        self, core: Core, request: PollRequest[K], feed: EventFeed, policy: Policy, patience: float = 0.0
    ) -> None:
        super().__init__(core, request, policy.stall + patience, policy.stall, partial(feed.has_news, True))
        self.feed: Final = feed
        self._time, self._heartbeat = core.loop.time, policy.heartbeat
        age, left = policy.age(), inf
        if request.until is not None:
            require_seconds("until", request.until)
            left = request.until - time()
        #: By the purgatory's clock: when it is old.
        self._end = self._time() + min(left, inf if age is None else age)
        self.is_reading = False

    async def read(self) -> bytes:
        """Return the next events, or nothing if there are none yet."""
        self.is_reading = True
        events = b""
        try:
            events = await self.feed.next(self.take_call())  # this read may miss later changes
        finally:
            if self.feed.is_awaited:
                self.count_read(bool(events))
        self.is_reading = False
        return b"" if self.is_old() else events

    async def next(self) -> bytes | None:
        """Wait for the next events, or until a heartbeat is due. Returns: None if this is too old, or over.

        Called when the last events have been sent.
        """
        feed = self.feed
        if self.is_old() or feed.is_over:
            self.force_complete()
        elif feed.has_news(self.is_called):
            self.begin_step()
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        elif (woken := self.wait(min(self._heartbeat, self._end - self._time()))) is not None:
            await woken
            if self.is_old():
                self.force_complete()
        if self.done():
            return None
        return feed.take() or await self.read() or HEARTBEAT

    def is_old(self) -> bool:
        """Whether its age or its login is over: nothing more is delivered."""
        return self._end - self._time() <= _ROUNDING


def retry(policy: Policy) -> bytes:
    """Have the client reconnect after a random time within ``Policy.retry_after``."""
    low, high = policy.retry_after
    return b"retry: %d\n" % randint(low * 1000, high * 1000)


def replaced(exc: Exception) -> bytes:
    """The event of a stream that a newer one has replaced."""
    return b"retry: %d\nevent: replaced\n%b" % (_A_DAY, _data(_bytes(exc)))


@lru_cache(1)
def event(version: str, body: bytes) -> bytes:
    """The last event is cached: many streams send the same."""
    return b"id: %b\n%b" % (version.encode(), _data(body))


def gone(exc: Exception) -> bytes:
    """With an empty id, so that the client does not resume from its version when it reconnects."""
    return b"event: gone\nid:\n%b" % _data(_bytes(exc))


def _data(text: bytes) -> bytes:
    return b"data: %b\n\n" % b"\ndata: ".join(_LINE_END.split(text))


def _bytes(exc: Exception) -> bytes:
    return str(exc).encode(errors="replace")
