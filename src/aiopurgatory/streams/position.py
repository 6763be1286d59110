"""The position of a listener in its topic, and the iterator of events from there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Self, final

from ..core.kit import StreamWait, core_of
from ..errors import GoneError, NotFoundError, PurgatoryClosedError
from ..lifecycle import Closing
from .event import Event, StoreDownError, StoreError
from .tail import Tails
from .tasks import MAX_ROWS
from .topic_state import TopicState, number_in, place


@final
class Position:
    """Where a listener is in its topic. Call leave() at the end.

    Args: after: the id of the last event that it has, or None.
    """

    __slots__ = ("_has_left", "_lineage", "_number", "_tail", "_tails", "_until", "id", "is_over", "seen")

    def __init__(self, tails: Tails, topic: str, after: str | None) -> None:
        self._tails = tails
        self.id = after
        self._lineage: object = None
        self._number = 0
        #: The tail's turn when events were taken last. There is something to do if it is another one.
        self.seen = -1
        #: Whether the last event was taken.
        self.is_over = False
        self._has_left = False
        self._tail, self._until = tails.join(topic, after)

    def leave(self) -> None:
        """Leave the tail. Idempotent."""
        if not self._has_left:
            self._has_left = True
            self._tails.leave(self._tail)

    async def until_known(self, timeout: float) -> None:
        """Wait until the topic is there, or is an empty one, or until next() raises.

        Args: timeout: seconds after which not to wait for the server any longer.
        """
        tail = self._tail
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout) as waiting:
                while tail.state is None and tail.error is None and not self._is_late():
                    if tail.is_absent and self._until == inf:
                        return
                    if tail.is_absent:
                        waiting.reschedule(None)
                    tail.changed.clear()
                    await tail.changed.wait()

    @property
    def is_read(self) -> bool:
        """Whether the topic was read, or is not there."""
        return self._tail.state is not None or self._tail.is_absent

    def require_topic(self) -> None:
        """Raises: NotFoundError: there is no such topic; StoreDownError: the server has not said so either."""
        if not self.is_read:
            raise StoreDownError("the log has not answered in time")
        if self._tail.state is None and self._until < inf:
            raise NotFoundError(f"there is no such topic: {self._tail.topic!r}")

    def has_news(self) -> bool:
        """Whether next() may return events, or raise."""
        return self._tail.turn != self.seen

    def has_answer(self) -> bool:
        """Whether next() will return events, or raise, or the last event was taken. (Not if the server is down.)"""
        if not self.has_news():
            return False
        tail, number = self._tail, self._number
        state = tail.state
        if tail.error is not None or state is None:
            return tail.error is not None or self._lineage is not None or self._is_late()
        if self._lineage is not tail.lineage or self.id is None:
            try:
                number = place(state, self.id)
            except GoneError:
                return True
        return number < tail.last or (state.end is not None and number == state.last)

    async def next(self) -> list[Event]:
        """Return the next events; none if there is no newer one yet.

        Raises:
            GoneError: the next ones are gone. Set ``id`` to ``exc.after`` to go on.
            NotFoundError: there is no such topic.
            StoreError: the topic cannot be read.
        """
        tail = self._tail
        self.seen = tail.turn
        if tail.error is not None:
            raise StoreError(f"the topic cannot be read: {tail.error}") from tail.error
        state = tail.state
        if state is None:
            self._require_patience()
            return []
        try:
            if self._lineage is not tail.lineage or self.id is None:
                self._settle(state)
                self._lineage = tail.lineage
            behind = tail.last - self._number
            events = tail.window.newest(behind, MAX_ROWS) if behind <= len(tail.window.events) else None
        except GoneError:  # this listener may have read more than its tail: the server tells
            self._number, events = number_in(self.id), None
        if events is None:
            try:
                state, events = await self._older(tail.topic)
            except StoreDownError:
                tail.retry()
                return []
        if events:
            self.id = events[-1].id
            self._number += len(events)
        if self._number < tail.last:
            self.seen = -1
        self.is_over = state.end is not None and self._number == state.last
        return events

    def take(self) -> Event | None:
        """Return the next event if it is the newest, and nothing else has changed; None: call next()."""
        tail = self._tail
        if tail.error is not None or self._lineage is not tail.lineage or self.id is None:
            return None
        event = tail.window.last() if tail.last == self._number + 1 else None
        if event is None or event.is_end:
            return None
        self.seen, self.id, self._number = tail.turn, event.id, tail.last
        return event

    def go_on(self, exc: GoneError) -> None:
        """Go on with the kept events."""
        self.id, self._lineage, self.seen = exc.after, None, -1

    def _require_patience(self) -> None:
        """Raises: NotFoundError: the unknown topic was waited for long enough (S9), or was deleted."""
        if self._lineage is not None:
            raise NotFoundError(f"the topic is not there any more: {self._tail.topic!r}")
        if self._is_late():
            raise NotFoundError(f"there is no such topic: {self._tail.topic!r}")

    def _is_late(self) -> bool:
        """Whether the unknown topic was waited for long enough (S9)."""
        return self._tail.is_absent and asyncio.get_running_loop().time() >= self._until

    def _settle(self, state: TopicState) -> None:
        """Find the id in *state*. Raises: GoneError."""
        self._number = place(state, self.id)
        if self.id is not None or state.producer:  # else it is the oldest one kept, until there was an event
            self.id = state.id_of(self._number)

    async def _older(self, topic: str) -> tuple[TopicState, list[Event]]:
        read = await self._tails.reads.older(topic, self._number)
        # The topic may have changed since: compare again (S2).
        self._settle(read.state)
        if read.first != self._number + 1:
            after = read.state.id_of(max(read.first, read.state.first) - 1)
            raise GoneError("events are gone; the oldest kept is next", after=after)
        return read.state, list(read.events)


@final
class Listener(StreamWait):
    """A listener, from its first event to its end. (The inspector shows the names of classes.)"""

    __slots__ = ()


@final
class Follow(Closing):
    """The result of ``EventLog.follow()``: an asynchronous iterator of events, for one task at a time.

    Its place is free again when it ends or raises, its task is cancelled, or aclose() is called. After a ``break``, it
    is free when nothing refers to this any more. After a cancellation, as by ``asyncio.timeout()``, it can be iterated
    further: nothing is lost.
    """

    __slots__ = ("_after", "_events", "_is_over", "_is_waiting", "_loop", "_place", "_ready", "_topic")

    def __init__(self, ready: Callable[[], Awaitable[Tails]], topic: str, after: str | None) -> None:
        self._ready, self._topic, self._after = ready, topic, after
        self._events: deque[Event] = deque()
        self._is_over = self._is_waiting = False
        self._loop: asyncio.AbstractEventLoop | None = None
        #: None: it has none, or none any more.
        self._place: tuple[Position, Listener] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._events:
            await self._fill()
        return self._events.popleft()

    async def aclose(self) -> None:
        """Free the place, and end the iteration. A second call does nothing."""
        self._is_over = True
        self._events.clear()
        self._leave()

    def __del__(self) -> None:
        if self._loop is not None and self._place is not None:
            # The garbage collector may run in any thread.
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_leave, *self._place)

    async def _fill(self) -> None:
        """Wait for events. Raises: StopAsyncIteration: there are no more."""
        if self._is_waiting:
            raise RuntimeError("another task waits for the next event; follow() once for each task")
        self._is_waiting = True
        try:
            while not self._events:
                if self._is_over:
                    raise StopAsyncIteration
                position, listener = place = self._place or await self._enter()
                if listener.done():
                    listener.result()  # raises, if it was not completed from outside
                    raise PurgatoryClosedError("the listener was ended")
                if not position.has_news():
                    await listener.wait()
                    continue
                listener.take_call()
                event = position.take()
                events = await position.next() if event is None else (event,)
                if self._place is not place:
                    continue  # it was closed meanwhile
                self._events.extend(events)
                if position.is_over:
                    self._is_over = True
                    self._leave()
        except BaseException as exc:
            self._is_over = self._is_over or not isinstance(exc, asyncio.CancelledError)
            self._leave()
            raise
        finally:
            self._is_waiting = False

    async def _enter(self) -> tuple[Position, Listener]:
        tails = await self._ready()
        position = Position(tails, self._topic, self._after)
        listener = Listener(core_of(tails.purgatory), has_news=position.has_news)
        try:
            tails.purgatory.watch(listener, (self._topic,))
        except BaseException:
            position.leave()
            raise
        self._loop, self._place = asyncio.get_running_loop(), (position, listener)
        return self._place

    def _leave(self) -> None:
        """Free the place. The next event is the one after the last that was taken."""
        place, self._place = self._place, None
        if place is not None:
            self._after = place[0].id
            if self._loop is not None and not self._loop.is_closed():  # else its coroutine is garbage
                _leave(*place)


def _leave(position: Position, listener: Listener) -> None:
    try:
        if position.is_over:
            listener.force_complete()
        else:
            listener.cancel()
    finally:
        position.leave()
