"""The iterator of a listener."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self, final

from ..core.kit import StreamWait, core_of
from ..errors import PurgatoryClosedError
from ..lifecycle import Closing
from ..purgatory import Purgatory
from .event import Event
from .position import Position
from .tails import Tails


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

    __slots__ = ("_after", "_events", "_is_over", "_is_waiting", "_listener", "_loop", "_position", "_ready", "_topic")

    def __init__(self, ready: Callable[[], Awaitable[tuple[Purgatory, Tails]]], topic: str, after: str | None) -> None:
        self._ready, self._topic, self._after = ready, topic, after
        self._events: deque[Event] = deque()
        self._is_over = self._is_waiting = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._position: Position | None = None
        self._listener: Listener | None = None

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
        if self._loop is None or self._position is None or self._loop.is_closed():
            return
        # The garbage collector may run in any thread.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_leave, self._position, self._listener)

    async def _fill(self) -> None:
        """Wait for events. Raises: StopAsyncIteration: there are no more."""
        if self._is_waiting:
            raise RuntimeError("another task waits for the next event; follow() once for each task")
        self._is_waiting = True
        try:
            while not self._events:
                if self._is_over:
                    raise StopAsyncIteration
                position, listener = await self._place()
                if listener.done():
                    listener.result()  # raises, if it was not completed from outside
                    raise PurgatoryClosedError("the listener was ended")
                listener.take_call()
                events = await position.next()
                if self._position is not position:
                    continue  # it was closed meanwhile
                self._events.extend(events)
                if position.is_over:
                    self._is_over = True
                    self._leave()
                elif not events and not position.has_news() and (woken := listener.wait()) is not None:
                    await woken
        except asyncio.CancelledError:
            self._leave()
            raise
        except BaseException:
            self._is_over = True
            self._leave()
            raise
        finally:
            self._is_waiting = False

    async def _place(self) -> tuple[Position, Listener]:
        if self._position is None or self._listener is None:
            purgatory, tails = await self._ready()
            position = Position(tails, self._topic, self._after)
            listener = Listener(core_of(purgatory), has_news=position.has_news)
            try:
                purgatory.watch(listener, (self._topic,))
            except BaseException:
                position.leave()
                raise
            self._position, self._listener, self._loop = position, listener, asyncio.get_running_loop()
        return self._position, self._listener

    def _leave(self) -> None:
        """Free the place. The next event is the one after the last that was taken."""
        position, self._position = self._position, None
        listener, self._listener = self._listener, None
        if position is not None:
            self._after = position.id
            if self._loop is not None and not self._loop.is_closed():  # else its coroutine is garbage
                _leave(position, listener)


def _leave(position: Position, listener: Listener | None) -> None:
    try:
        if listener is not None:
            if position.is_over:
                listener.force_complete()
            else:
                listener.cancel()
    finally:
        position.leave()
