"""The operation of event streams, and where it gets its events from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol, final

from ..core.kit import NO_CHECK, is_due, loop_of, mark_retrieved, owner_of
from ..purgatory import Purgatory
from .policy import Policy
from .poll import ClientOperation
from .prefer import K, PollRequest
from .sse import HEARTBEAT


class EventFeed(Protocol):
    """The events of one stream.

    Attributes:
        version: the id of the last event: the client resumes from it. None: it has none.
        seen: the stream reads again once its version function returns something else than this.
        is_over: no event will follow. The stream sends its last events, and ends.
    """

    version: str | None
    seen: str
    is_over: bool

    async def next(self, after: str | None, /) -> bytes:
        """Read the next events, and set the attributes. Returns: the events as text, or nothing if there are none yet.

        Cancelled if the stream ends meanwhile, as when its client disconnects.

        Args: after: the same as *version*.

        Raises:
            GoneError, NotFoundError: there are no events for this client, and no others to go on with.
            ReadFailedError: they cannot be read now.
        """
        ...

    def close(self) -> None:
        """The stream has ended. Idempotent."""
        ...


class QuickFeed(EventFeed, Protocol):
    """A feed that may have its next event at hand."""

    def has_news(self) -> bool:
        """Whether there is something to read."""
        ...

    def take(self) -> bytes | None:
        """Return the next event if there is one, and nothing else; None: call next()."""
        ...


class EventStream(ClientOperation[K]):
    """A stream of events: one operation from its start to its end, so that it keeps its place between two events.

    An event does not end it, but wakes its task. Its timeout covers one step at a time: *stall* seconds to send an
    event, then *heartbeat* seconds to wait for the next. It expires only if an event could not be sent in time. When it
    is too old, it completes.

    Args:
        version: returns something else than ``EventFeed.seen`` if there is news, as Source.version does. None: that has
            to be awaited; then, a check after a read has begun causes another read.
        policy: has its times.
    """

    __slots__ = (
        "_check",
        "_end",
        "_heartbeat",
        "_is_checked",
        "_purgatory",
        "_seen",
        "_stall",
        "_version",
        "_woken",
        "check",
        "is_reading",
    )

    def __init__(
        self, request: PollRequest[K], version: Callable[[K], str] | None, purgatory: Purgatory, policy: Policy
    ) -> None:
        super().__init__(request, policy.stall)
        self._version = version
        mark_retrieved(self)  # its task gets a failure; until then, nothing awaits it
        self._purgatory, self._heartbeat, self._stall = purgatory, policy.heartbeat, policy.stall
        #: Whether a check came since the last read began.
        self._is_checked = False
        #: The number of the newest check since the last read began; and, for the read under way, NO_CHECK if anything
        #: else called for it.
        self._check = 0
        self.check = NO_CHECK
        age = policy.age()
        #: When it is old, by the purgatory's clock.
        self._end = inf if age is None else loop_of(purgatory).time() + age
        #: The future that its task awaits for the next event.
        self._woken: asyncio.Future[None] | None = None
        self.is_reading = False
        #: The version that its task has read.
        self._seen = ""

    def try_complete(self) -> bool:
        owner, woken = owner_of(self), self._woken
        assert owner is not None
        self._is_checked = True
        is_waiting = woken is not None and not woken.done()  # else an event is being sent
        if not is_due(self):
            if not self._has_news():
                return False
            self._check = max(self._check, owner.call_for_read(self))
        elif is_waiting:
            self._check = NO_CHECK
        if woken is not None and is_waiting:
            self._purgatory.reschedule(self, self._stall)
            woken.set_result(None)
        return False

    async def read(self, feed: EventFeed) -> bytes:
        """Return the next events of *feed*, or nothing if there are none yet."""
        # The read may miss later changes.
        self.is_reading, self._is_checked = True, False
        self.check, self._check = (self._check or NO_CHECK) if self._seen else NO_CHECK, 0
        events = b""
        try:
            events = await feed.next(feed.version)
        finally:
            owner = owner_of(self)
            if self._version is None and self.check != NO_CHECK and owner is not None:
                owner.count_read(bool(events))
        self.is_reading = False
        return events

    async def next(self, feed: EventFeed) -> bytes | None:
        """Wait for the next events of *feed*, or until a heartbeat is due. Returns: None if this is too old, or over.

        Called when the last events have been sent.
        """
        if self.done():
            return None
        left = self._end - loop_of(self._purgatory).time()
        if left <= 0 or feed.is_over:
            self.force_complete()
            return None
        self._seen = feed.seen
        if self._has_news():
            self._purgatory.reschedule(self, self._stall)
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        else:
            self._purgatory.reschedule(self, min(self._heartbeat, left))
            self._woken = woken = asyncio.get_running_loop().create_future()
            await woken
        return await self.read(feed) or HEARTBEAT

    def _has_news(self) -> bool:
        """Whether to read: the version has changed, or a check may tell of that."""
        version = self._version
        return self._is_checked if version is None else version(self.resource) != self._seen


@final
class QuickStream(EventStream[K]):
    """A stream of many small events, each of which counts.

    Its timer is not set anew for each of them: when it fires, it is set to the time left. Checks are not counted by the
    results of their reads.

    Args: patience: seconds that the first read may take, in addition to *stall*.
    """

    __slots__ = ("_due", "_feed", "_is_stepping", "_step", "_time")

    def __init__(
        self, request: PollRequest[K], feed: QuickFeed, purgatory: Purgatory, policy: Policy, patience: float
    ) -> None:
        super().__init__(request, None, purgatory, policy)
        self._feed = feed
        self._time = loop_of(purgatory).time
        self._step = min(self._stall, self._heartbeat)
        #: Whether the timer fires at least once in each step.
        self._is_stepping = False
        #: When a heartbeat is due, or, while events are read and sent, when that takes too long.
        self._due = self._time() + patience + self._stall

    def try_complete(self) -> bool:
        woken = self._woken
        is_waiting = woken is not None and not woken.done()
        if is_due(self):
            left = self._due - self._time()
            if left > 0.0 or is_waiting:
                self._purgatory.reschedule(self, min(left, self._step) if left > 0.0 else self._step)
            is_waiting = is_waiting and left <= 0.0
        elif is_waiting:
            is_waiting = self._feed.has_news()
        if is_waiting and woken is not None:
            self._due = self._time() + self._stall
            woken.set_result(None)
        return False

    async def read(self, feed: EventFeed) -> bytes:
        self.is_reading = True
        events = await feed.next(feed.version)
        self.is_reading = False
        return events

    async def next(self, feed: EventFeed) -> bytes | None:
        if self.done():
            return None
        now = self._time()
        if not self._is_stepping:
            self._is_stepping = True
            self._purgatory.reschedule(self, self._step)
        if now >= self._end or feed.is_over:
            self.force_complete()
            return None
        if self._feed.has_news():
            self._due = now + self._stall
            await asyncio.sleep(0)
        else:
            self._due = min(now + self._heartbeat, self._end)
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        return self._feed.take() or await self.read(feed) or HEARTBEAT
