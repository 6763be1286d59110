"""The operations of long polls and of event streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextvars import Context, copy_context
from math import inf
from typing import Any, Final, Generic

from ..core.kit import ALL, KeyChecks, Undecided, is_due, loop_of, mark_retrieved, owner_of
from ..errors import PurgatoryError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from ..waits import Rereads
from .asgi import Message, Receive, listen
from .sources import K

logger = logging.getLogger("aiopurgatory")

#: The most parts of an unread body to receive while waiting for a disconnect, which comes after them.
MAX_MESSAGES: Final = 64
#: The most messages to receive once the body is whole. A server sends only the disconnect.
_MAX_AFTER: Final = 3
#: Seconds a poll waits, at most, before the listener for its client's disconnect starts.
LISTEN_AFTER = 0.05


class UnreadBodyError(PurgatoryError):
    """The request has a body in more than 64 parts: no disconnect of its client would be noticed."""


class LongPoll(DelayedOperation[None], Generic[K]):
    """Waits until *resource* has another version than *known*.

    It does not read the body, which is read when the answer is written. So a check of many polls is short, and the body
    covers events between the check and the answer.
    """

    __slots__ = ("_after", "_known", "_listener", "_parts", "_version", "client", "group", "left", "resource")

    def __init__(
        self,
        resource: K,
        version: Callable[[K], str],
        known: str,
        timeout: float | None,
        client: Hashable,
        group: Hashable,
    ) -> None:
        super().__init__(timeout)
        self.resource, self.client, self.group = resource, client, group
        self._version, self._known = version, known
        #: Whether the client has disconnected.
        self.left = False
        self._parts = self._after = 0
        self._listener: asyncio.Task[None] | None = None

    def try_complete(self) -> bool:
        return self._version(self.resource) != self._known and self.force_complete()

    def listen(self, receive: Receive) -> None:
        """Cancel this when the client disconnects, until stop_listening()."""
        self._listener = listen(receive, self._hear)

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None  # it refers to this: cut the cycle, so that no poll needs the garbage collector

    def leave(self) -> None:
        """Cancel this, because the client has disconnected."""
        self.left = True
        self.cancel()

    def _hear(self, message: Message | Exception) -> bool:
        """Returns: whether to go on listening."""
        if isinstance(message, Exception):  # nothing more is heard of this client
            if not isinstance(message, OSError):
                logger.warning("receive() raised %r; the poll ends as if its client had disconnected", message)
            self.leave()
            return False
        if message["type"] == "http.disconnect":
            self.leave()
            return False
        if message.get("more_body"):
            self._parts += 1
            if self._parts == MAX_MESSAGES:  # nobody would hear this client leave
                self.fail(UnreadBodyError(f"the request has a body in more than {MAX_MESSAGES} parts; send none"))
            return self._parts < MAX_MESSAGES
        # A test's stand-in for a server may send the same message at every call: then it never sends a disconnect.
        self._after += 1
        return self._after < _MAX_AFTER


class ReadingPoll(LongPoll[K]):
    """Records checks for its task, which reads an asynchronous source; see read_until()."""

    __slots__ = ("rereads",)

    def __init__(
        self,
        resource: K,
        timeout: float | None,
        client: Hashable,
        group: Hashable,
        on_due: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(resource, _no_version, "", timeout, client, group)
        mark_retrieved(self)  # read_until() raises its failure; during a read, nothing awaits it
        self.rereads = Rereads(on_due)

    def try_complete(self) -> bool:
        self.rereads.tell(self)
        return False


def _no_version(resource: object) -> str:
    return ""


class EventStream(LongPoll[K]):
    """A stream of events: one operation from its start to its end, so that it keeps its place between two events.

    An event does not end it, but wakes its task. Its timeout covers one step at a time: *stall* seconds to send an
    event, then *heartbeat* seconds to wait for the next. It expires only if an event could not be sent in time. After
    *age* seconds, it completes.
    """

    __slots__ = ("_calls", "_end", "_heartbeat", "_purgatory", "_stall", "_woken", "is_reading")

    def __init__(
        self,
        purgatory: Purgatory,
        resource: K,
        version: Callable[[K], str],
        heartbeat: float,
        stall: float,
        age: float | None,
        client: Hashable,
        group: Hashable,
    ) -> None:
        super().__init__(resource, version, "", stall, client, group)
        mark_retrieved(self)  # its task gets a failure in run(); until then, nothing awaits it
        self._purgatory, self._heartbeat, self._stall = purgatory, heartbeat, stall
        #: When it is old, by the purgatory's clock.
        self._end = inf if age is None else loop_of(purgatory).time() + age
        #: The future that its task awaits for the next event.
        self._woken: asyncio.Future[None] | None = None
        #: Checks whose effect depends on the version that is read now.
        self._calls: Undecided | None = None
        self.is_reading = False

    def try_complete(self) -> bool:
        woken = self._woken
        is_check = not is_due(self)
        if woken is None or woken.done():  # an event is being sent
            if is_check:
                self._call_for_read()
        elif not is_check or self.has_news():
            if is_check:
                self._call_for_read()
            self._purgatory.reschedule(self, self._stall)
            woken.set_result(None)
        return False

    def has_news(self) -> bool:
        return self._version(self.resource) != self._known

    def begin_read(self) -> None:
        """Called before its task reads the source: the read may miss later changes."""
        self.is_reading = True
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
            owner.call_for_read(self)

    async def news(self, known: str) -> bool:
        """Wait until the version is not *known*, or until a heartbeat is due. Returns: False if this is too old."""
        left = self._end - loop_of(self._purgatory).time()
        if left <= 0:
            self.force_complete()
            return False
        self._known = known
        if self.has_news():
            self._purgatory.reschedule(self, self._stall)
            await asyncio.sleep(0)  # let the loop run, even if another thread changes the version all the time
        else:
            self.stop_counting()
            self._purgatory.reschedule(self, min(self._heartbeat, left))
            self._woken = woken = asyncio.get_running_loop().create_future()
            await woken
        return True


class ReadingStream(EventStream[K]):
    """An event stream of an asynchronous source. A check after a read has begun causes another read."""

    __slots__ = ("_is_checked",)

    def __init__(
        self,
        purgatory: Purgatory,
        resource: K,
        heartbeat: float,
        stall: float,
        age: float | None,
        client: Hashable,
        group: Hashable,
    ) -> None:
        super().__init__(purgatory, resource, _no_version, heartbeat, stall, age, client, group)
        self._is_checked = False

    def try_complete(self) -> bool:
        self._is_checked = True
        return super().try_complete()

    def has_news(self) -> bool:
        return self._is_checked

    def begin_read(self) -> None:
        self._is_checked = False
        super().begin_read()


class Newcomers:
    """Polls without a listener yet: those answered within half of LISTEN_AFTER never need one.

    Listening takes a tenth of a poll's CPU time. In return, a disconnect is noticed up to LISTEN_AFTER later.

    One timer serves all. At each call, those that were there at the call before get listeners. (If all of them did, so
    would polls that have just come: on a busy server, a third of those that are answered at once.)
    """

    __slots__ = ("_older", "_polls", "_timer")

    def __init__(self) -> None:
        #: Polls since the timer's last call, and those that were there at that call.
        self._polls: dict[LongPoll[Any], tuple[Receive, Context]] = {}
        self._older: dict[LongPoll[Any], tuple[Receive, Context]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, poll: LongPoll[Any], receive: Receive) -> None:
        self._polls[poll] = receive, copy_context()
        if self._timer is None:
            self._call_later()

    def remove(self, poll: LongPoll[Any]) -> None:
        if self._polls.pop(poll, None) is None:
            self._older.pop(poll, None)

    def _call_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LISTEN_AFTER / 2, self._listen)

    def _listen(self) -> None:
        older, self._older, self._polls, self._timer = self._older, self._polls, {}, None
        if self._older:
            self._call_later()
        for poll, (receive, context) in older.items():
            context.run(poll.listen, receive)  # a middleware's receive() may use what its request has set


class Linger(DelayedOperation[None]):
    """Checks *key* at its deadline, once for all its polls. A poll with an earlier deadline still expires on time.

    EVERY_KEY stands for every key.
    """

    __slots__ = ("_checks", "_key", "_limit")

    def __init__(self, checks: KeyChecks, key: Hashable, limit: int, timeout: float) -> None:
        super().__init__(timeout)
        self._checks, self._key, self._limit = checks, key, limit

    def add(self, limit: int) -> None:
        """Answer *limit* more polls; ALL: every poll."""
        self._limit = min(self._limit + limit, ALL)

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._checks.mark_announced(self._key, self._limit)
