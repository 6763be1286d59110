"""Event streams: their operation, the events of a source, and how events are written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable
from functools import lru_cache
from math import inf
from random import randint
from typing import Final, Generic

from ..core.kit import NO_CHECK, Undecided, is_due, loop_of, mark_retrieved, owner_of
from ..errors import GoneError, NotFoundError
from ..purgatory import Purgatory
from .places import ReplacedError
from .policy import Policy
from .poll import LongPoll
from .prefer import K
from .reader import Reader

#: Milliseconds before a replaced client reconnects, if its page does not close the EventSource.
_A_DAY: Final = 24 * 60 * 60 * 1000
#: Line ends; ``bytes.splitlines()`` would drop the last one.
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class EventStream(LongPoll[K]):
    """A stream of events: one operation from its start to its end, so that it keeps its place between two events.

    An event does not end it, but wakes its task. Its timeout covers one step at a time: *stall* seconds to send an
    event, then *heartbeat* seconds to wait for the next. It expires only if an event could not be sent in time. When it
    is too old, it completes.

    Args:
        version: Source.version, or None if the source is asynchronous. Then, a check after a read has begun causes
            another read.
        policy: has its times.
    """

    __slots__ = (
        "_calls",
        "_check",
        "_end",
        "_heartbeat",
        "_is_async",
        "_is_checked",
        "_purgatory",
        "_seen",
        "_stall",
        "_woken",
        "check",
        "is_reading",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        resource: K,
        version: Callable[[K], str] | None,
        policy: Policy,
        client: Hashable,
        group: Hashable,
    ) -> None:
        super().__init__(resource, version, "", policy.stall, client, group)
        mark_retrieved(self)  # its task gets a failure in run(); until then, nothing awaits it
        self._purgatory, self._heartbeat, self._stall = purgatory, policy.heartbeat, policy.stall
        self._is_async = version is None
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
        #: Checks whose effect depends on the version that is read now.
        self._calls: Undecided | None = None
        self.is_reading = False
        #: The version that its task has read.
        self._seen = ""

    def try_complete(self) -> bool:
        self._is_checked = True
        woken = self._woken
        is_check = not is_due(self)
        if woken is None or woken.done():  # an event is being sent
            if is_check:
                self._call_for_read()
        elif not is_check or self.has_news():
            if is_check:
                self._call_for_read()
            else:
                self._check = NO_CHECK
            self._purgatory.reschedule(self, self._stall)
            woken.set_result(None)
        return False

    def has_news(self) -> bool:
        """Whether to read: the version has changed, or a check may tell of that."""
        return self._is_checked if self._is_async else self._version(self.resource) != self._seen

    def begin_read(self) -> None:
        """Called before its task reads the source: the read may miss later changes."""
        self.is_reading, self._is_checked = True, False
        self.check, self._check = (self._check or NO_CHECK) if self._seen else NO_CHECK, 0
        owner = owner_of(self)
        self._calls = None if owner is None else owner.take_calls(self)

    def decide(self, is_news: bool) -> None:
        """The version was read: the checks that led to that had an effect if it *is_news*."""
        if self._calls is not None:
            self._calls.decide(is_news)
            self._calls = None

    def end_read(self) -> None:
        """The event is read, too."""
        self.is_reading = False

    def stop_counting(self) -> None:
        """Checks that it has not read for had no effect."""
        self.decide(False)
        self.begin_read()
        self.decide(False)
        self.end_read()

    def _call_for_read(self) -> None:
        owner = owner_of(self)
        if owner is not None:
            self._check = max(self._check, owner.call_for_read(self))

    async def news(self, seen: str) -> bool:
        """Wait until the version is not *seen*, or until a heartbeat is due. Returns: False if this is too old."""
        left = self._end - loop_of(self._purgatory).time()
        if left <= 0:
            self.force_complete()
            return False
        self._seen = seen
        if self.has_news():
            self._purgatory.reschedule(self, self._stall)
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        else:
            self.stop_counting()
            self._purgatory.reschedule(self, min(self._heartbeat, left))
            self._woken = woken = asyncio.get_running_loop().create_future()
            await woken
        return True


class StateFeed(Generic[K]):
    """The events of a stream of states: each has the newest one.

    Args: stream: is told of each read. after: the client's version, or None.
    """

    __slots__ = ("_reader", "_stream", "is_over", "seen", "version")

    def __init__(self, reader: Reader[K], stream: EventStream[K], after: str | None) -> None:
        self._reader, self._stream = reader, stream
        #: The version of the last event: its id.
        self.version = after
        #: What version() returned last. It may lag behind that of the last event.
        self.seen = ""
        #: Whether no event will follow.
        self.is_over = False

    async def next(self, after: str | None) -> bytes:
        """Read the state. Returns: the events for a client at version *after*; none if that is the newest.

        Raises:
            GoneError, NotFoundError: there is no state, not even from scratch.
            ReadFailedError: an AsyncSource has raised.
        """
        stream, body = self._stream, self._reader.body
        stream.begin_read()
        self.seen = version = await self._reader.version(stream.resource, stream.check)
        stream.decide(version != after)
        events = b""
        if version != after:
            try:
                version, found = await body(stream.resource, after, version, stream.check)
                events = b"" if version == after else event(version, found)
            except GoneError as exc:
                version, found = await body(stream.resource, None, version, stream.check)
                events = gone(exc) + event(version, found)
        self.version = version
        stream.end_read()
        return events

    async def first(self) -> bytes:
        """Read the state for the first time, as next() does."""
        return await self.next(self.version)

    def close(self) -> None:
        """Nothing is to be closed."""


def retry(policy: Policy) -> bytes:
    """Have the client reconnect after a random time within ``Policy.retry_after``."""
    low, high = policy.retry_after
    return b"retry: %d\n\n" % randint(low * 1000, high * 1000)


def replaced(exc: ReplacedError) -> bytes:
    """The event of a stream that a newer one has replaced."""
    return b"retry: %d\nevent: replaced\n%b" % (_A_DAY, _data(_bytes(exc)))


@lru_cache(1)
def event(version: str, body: bytes) -> bytes:
    """The last event is cached: many streams send the same."""
    return b"id: %b\n%b" % (version.encode(), _data(body))


def gone(exc: GoneError | NotFoundError) -> bytes:
    """With an empty id, so that the client does not resume from its version when it reconnects."""
    return b"event: gone\nid:\n%b" % _data(_bytes(exc))


def _data(text: bytes) -> bytes:
    return b"data: %b\n\n" % b"\ndata: ".join(_LINE_END.split(text))


def _bytes(exc: BaseException) -> bytes:
    return str(exc).encode(errors="replace")
