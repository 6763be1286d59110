"""Event streams: their operation, where it gets its events from, and how these are written."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from math import inf
from random import randint
from typing import Final, Protocol, final

from ..core.kit import NO_CHECK, core_of, deadline_seconds, is_due, mark_retrieved
from ..purgatory import Purgatory
from .policy import Policy
from .poll import ClientOperation
from .prefer import K, PollRequest

#: Seconds. Sums of floats are not exact, so a timer is set this much earlier, or it might be a tick late. A step may
#: end twice this much earlier.
_ROUNDING: Final = 1e-7
#: A comment, which EventSource ignores.
HEARTBEAT: Final = b":\n\n"
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

    Its timer is set lazily: an event does not move it. When it fires too early, it is set to the time left.

    Args:
        policy: has its times.
        patience: seconds that the first read may take, in addition to *stall*.
    """

    __slots__ = (
        "_check",
        "_core",
        "_due",
        "_end",
        "_fires",
        "_heartbeat",
        "_is_checked",
        "_stall",
        "_time",
        "_woken",
        "feed",
        "is_reading",
    )

    def __init__(
        self, request: PollRequest[K], feed: EventFeed, purgatory: Purgatory, policy: Policy, patience: float = 0.0
    ) -> None:
        super().__init__(request, policy.stall + patience)
        mark_retrieved(self)  # its task gets a failure; until then, nothing awaits it
        self.feed: Final = feed
        self._core, self._heartbeat, self._stall = core_of(purgatory), policy.heartbeat, policy.stall
        self._time = self._core.loop.time
        now, age = self._time(), policy.age()
        #: By the purgatory's clock: when it is old; when the step under way takes too long, or a heartbeat is due; and
        #: when its timer fires.
        self._end = inf if age is None else now + age
        self._due = self._fires = now + policy.stall + patience
        #: Whether a check came since the last read began.
        self._is_checked = False
        #: The newest check since the last read began; 0: none came; NO_CHECK: anything else calls for the next read.
        self._check = NO_CHECK
        #: The future that its task awaits for the next event.
        self._woken: asyncio.Future[None] | None = None
        self.is_reading = False

    def try_complete(self) -> bool:
        self._is_checked = True
        woken = self._woken
        is_waiting = woken is not None and not woken.done()  # else an event is being read or sent
        if is_due(self):
            if self._has_time() or not is_waiting:
                return False
            self._check = NO_CHECK
        elif self.feed.has_news(True):
            self._check = max(self._check, self._core.call_for_read(self))
        else:
            return False
        if woken is not None and is_waiting:
            self._set_due(self._time() + self._stall)
            woken.set_result(None)
        return False

    async def read(self) -> bytes:
        """Return the next events, or nothing if there are none yet."""
        # The read may miss later changes.
        self.is_reading, self._is_checked = True, False
        check, self._check = self._check or NO_CHECK, 0
        events = b""
        try:
            events = await self.feed.next(check)
        finally:
            if self.feed.is_awaited and check != NO_CHECK:
                self._core.count_read(bool(events))
        self.is_reading = False
        return events

    async def next(self) -> bytes | None:
        """Wait for the next events, or until a heartbeat is due. Returns: None if this is too old, or over.

        Called when the last events have been sent.
        """
        if self.done():
            return None
        now, feed = self._time(), self.feed
        if now + 2 * _ROUNDING >= self._end or feed.is_over:
            self.force_complete()
            return None
        if feed.has_news(self._is_checked):
            self._set_due(now + self._stall)
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        else:
            self._set_due(min(now + self._heartbeat, self._end))
            self._woken = woken = asyncio.get_running_loop().create_future()
            await woken
        return feed.take() or await self.read() or HEARTBEAT

    def _has_time(self) -> bool:
        """Its timer has fired. Returns: whether that was too early; then it is set again."""
        now, deadline = self._time(), deadline_seconds(self)
        is_forced = deadline is None or now < deadline  # by expire_all()
        self._fires = inf
        if now + 2 * _ROUNDING >= self._due or is_forced:
            return False
        self._set_due(self._due)
        return True

    def _set_due(self, due: float) -> None:
        self._due = due
        if due < self._fires:
            self._fires = due
            self._core.reschedule(self, max(due - self._time() - _ROUNDING, 0.0))


def retry(policy: Policy) -> bytes:
    """Have the client reconnect after a random time within ``Policy.retry_after``."""
    low, high = policy.retry_after
    return b"retry: %d\n\n" % randint(low * 1000, high * 1000)


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
