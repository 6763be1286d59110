"""The tails of a worker: what it knows of each topic that has listeners here, and the newest events of each."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import suppress
from contextvars import Context
from math import floor, inf
from random import random
from sys import getsizeof
from typing import Final, final

from ..clock import backoff
from ..errors import GoneError
from ..handover import Handover
from ..purgatory import Purgatory
from .event import Event, StoreDownError
from .store import Change, Page, Store
from .tasks import SharedReads, Tasks
from .topic_state import Suspicion, TopicState, changed, number_in, place, state_of

logger = logging.getLogger("aiopurgatory")

#: Seconds between two attempts to read while the server is down: the first pause, and the longest.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: The part of the time for an unknown topic that is added to it at most, so that clients don't return in a herd.
SPREAD: Final = 1 / 16
#: Looks in the time for an unknown topic, whether listeners have waited long enough (S9).
_LOOKS: Final = 64
#: Seconds of a loop iteration in which to call tails when all are called. Their reads take many times as long.
CALL_BUDGET: Final = 0.0002
#: Bytes that an event counts in addition to its data, which counts twice.
EVENT_SIZE: Final = 300


@final
class Window:
    """The newest events of a topic, without gaps, and the bytes of each. Windows changes it."""

    __slots__ = ("events", "sizes")

    def __init__(self) -> None:
        self.events: Final = deque[Event]()
        self.sizes: Final = deque[int]()

    def newest(self, count: int, most: int) -> list[Event]:
        """Return the newest *count* events, oldest first, but at most *most* of them."""
        start = len(self.events) - count
        return [self.events[at] for at in range(start, start + min(count, most))]

    def last(self) -> Event | None:
        """Return the newest event; None: it was dropped."""
        return self.events[-1] if self.events else None


@final
class Windows:
    """Bounds the bytes of all windows. Args: most: bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = 0
        #: The windows with events; the next one to lose its oldest event comes first.
        self._turn: OrderedDict[Window, None] = OrderedDict()

    def add(self, event: Event, window: Window) -> None:
        """Add *event* to *window*. The oldest events of all windows go, as far as the bound demands it."""
        size = 2 * getsizeof(event.data) + EVENT_SIZE  # as text, and as a server-sent event
        window.events.append(event)
        window.sizes.append(size)
        self._turn.setdefault(window)
        self.size += size
        while self.size > self._most:
            oldest = next(iter(self._turn))
            oldest.events.popleft()
            self.size -= oldest.sizes.popleft()
            if oldest.events:
                self._turn.move_to_end(oldest)
            else:
                del self._turn[oldest]

    def clear(self, window: Window) -> None:
        """Drop the events of *window*."""
        self._turn.pop(window, None)
        self.size -= sum(window.sizes)
        window.events.clear()
        window.sizes.clear()


@final
class Alarm:
    """Wakes the task that reads a topic: at a time, or when it is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._at = inf
        #: Set by a call, until the task clears it.
        self.called: Final = asyncio.Event()
        #: Whether the task waits.
        self.is_awaited = False

    def set(self, seconds: float) -> None:
        """Wake the task in *seconds*."""
        self._at = self._loop.time() + seconds

    async def wait(self) -> None:
        """Wait for the time, which may become a later one meanwhile, or a call."""
        self.is_awaited = True
        while not self.called.is_set() and (left := self._at - self._loop.time()) > 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left == inf else left):
                    await self.called.wait()
        self.is_awaited = False


@final
class Tail:
    """Reads *topic* for all its listeners in this worker (S10), from its making to stop().

    Args: after: the id of the first listener, or None. It begins to read there.
    """

    def __init__(self, tails: Tails, topic: str, after: str | None) -> None:
        self.topic: Final = topic
        self._reads, self._purgatory, self._windows = tails.reads, tails.purgatory, tails.windows
        self.window: Final = Window()
        self._unknown_timeout: Final = tails.unknown_timeout
        self._loop = asyncio.get_running_loop()
        self._alarm: Final = Alarm(self._loop)
        self._suspicion: Final = Suspicion()
        #: None: there is no such topic, as far as is known.
        self.state: TopicState | None = None
        #: Whether there was none at the last read.
        self.is_absent = False
        #: Changes whenever a listener must compare its id with the topic again.
        self.lineage: object = None
        #: Changes whenever a listener has something to do.
        self.turn = 0
        #: Set at each change of the turn. Who waits clears it first.
        self.changed: Final = asyncio.Event()
        #: Change it after the next read, even if that finds nothing.
        self._is_owed = False
        #: The timers of the looks, by their times.
        self._looks: dict[float, asyncio.TimerHandle] = {}
        #: Of these times, so that topics do not end their listeners together.
        self._phase = random()
        #: Why the topic cannot be read any more.
        self.error: Exception | None = None
        self.listeners = 0
        #: Attempts to read that have failed since the last one that has not.
        self._failures = 0
        #: The newest event that was read: its number and its id; and the version of the topic.
        self.last, self._id = number_in(after), after
        self._version = ""
        self._is_stopped = False
        # In an empty context: it outlives the request of its first listener.
        self._task = Context().run(tails.tasks.begin, self._run(), topic[:50])

    def join(self) -> float:
        """A listener has come. Returns: until when to wait for an unknown topic."""
        self.listeners += 1
        until = self._loop.time() + self._unknown_timeout * (1 + SPREAD * random())
        if self.state is None:
            self._look_at(until)
            self.call()
        return until

    def stop(self) -> None:
        """Read no more."""
        self._is_stopped = True  # a client library may lose the cancellation
        self._task.cancel()
        for look in self._looks.values():
            look.cancel()
        self._windows.clear(self.window)

    def call(self, change: Change | None = None) -> None:
        """Something may have been committed: *change*, if that is known. If it comes next, nothing needs to be read."""
        is_next = change is not None and self._version == change.expected
        if change is not None and is_next and self.state is not None and self._alarm.is_awaited:
            page = Page(change.version, "", 0.0, 0.0, "", change.rows)
            self._alarm.set(self._take(page, changed(self.state, change)))
        elif change is None or self._version != change.version:
            self._alarm.called.set()

    def retry(self) -> None:
        """A listener cannot read older events: turn the listeners when the server can be read again."""
        if not self._is_owed:
            self._loop.call_later(backoff(0, FIRST_PAUSE, LONGEST_PAUSE), self.call)
            self._is_owed = True

    async def _run(self) -> None:
        """Read whenever this is called, or it is time to."""
        try:
            while not self._is_stopped:
                self._alarm.called.clear()
                try:
                    page = await self._reads.read(self.topic, self.last)
                    left = self._take(page, state_of(page))
                    if self._is_owed:
                        self._is_owed = False
                        self._change()
                    if left == 0.0:  # S6
                        await self._reads.abandon(self.topic, page)
                    self._failures = 0
                except StoreDownError:
                    self._suspicion.forget()
                    left = backoff(self._failures, FIRST_PAUSE, LONGEST_PAUSE)
                    self._failures += 1
                self._alarm.set(left)
                await self._alarm.wait()
        except Exception as exc:
            logger.exception("the topic %r cannot be read; its listeners end", self.topic)
            self.error = exc
            self._windows.clear(self.window)
            self._change()

    def _take(self, page: Page, state: TopicState | None) -> float:
        """Take the *page* just read. Returns: seconds until the next read, unless it is called before; 0: see S6."""
        self._version = page.version
        if state is None:
            return self._take_nothing()
        former, self.state, self.is_absent = self.state, state, False
        is_changed = former is None or (former.epoch, former.generations) != (state.epoch, state.generations)
        if is_changed:
            self.lineage = object()
            try:
                self.last = place(state, self._id)
            except GoneError:  # S1: the events read before are lost, and perhaps this page
                self._jump(state)
                page.rows.clear()
        if page.rows and page.rows[0][0] == self.last + 1:
            events = [state.event(row) for row in page.rows]
            for event in events:
                self._windows.add(event, self.window)
            self.last, self._id = page.rows[-1][0], events[-1].id
            is_changed = True
        elif page.rows or self.last != state.last:  # S2: the next event is gone
            self._jump(state)
            is_changed = True
        if is_changed:
            self._change()
        return 1e-9 if self.last < state.last else self._suspicion.look(page, state, self._loop.time())

    def _take_nothing(self) -> float:
        if self.state is not None:  # it was deleted
            self.state, self.lineage, self.last, self._id = None, object(), 0, None
            self._windows.clear(self.window)
            # For listeners that have come, and not looked yet.
            self._look_at(self._loop.time() + self._unknown_timeout * (1 + SPREAD))
        if not self.is_absent:
            self.is_absent = self._is_owed = True
        return inf

    def _look_at(self, until: float) -> None:
        """Look at *until*, or a small part of the time later: so there are few such looks."""
        if until < inf and not self._is_stopped:
            step = max(self._unknown_timeout / _LOOKS, 0.01)
            look = (floor(until / step - self._phase) + 1 + self._phase) * step
            if look not in self._looks:  # not early: uvloop rounds to milliseconds
                self._looks[look] = self._loop.call_at(look + 1e-3, self._look, look, context=Context())

    def _look(self, look: float) -> None:
        del self._looks[look]
        if self.state is None:
            self._is_owed = True
            if not self._failures:  # else it reads again by itself
                self.call()

    def _jump(self, state: TopicState) -> None:
        """Go on after the newest event. Listeners compare their ids with the topic."""
        self.lineage = object()
        self._windows.clear(self.window)
        self.last, self._id = state.last, state.id_of(state.last)

    def _change(self) -> None:
        self.turn += 1
        self.changed.set()
        self._purgatory.notify(self.topic)


@final
class Tails:
    """The topics that somebody follows in this worker."""

    def __init__(self, store: Store, purgatory: Purgatory, window_bytes: int, unknown_timeout: float) -> None:
        self.purgatory, self.unknown_timeout = purgatory, unknown_timeout
        self.windows: Final = Windows(window_bytes)
        self._tails: dict[str, Tail] = {}
        self.tasks: Final = Tasks()
        self.reads: Final = SharedReads(store, self.tasks)
        self._calls: Final = Handover(CALL_BUDGET)

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, topic: str, after: str | None) -> tuple[Tail, float]:
        """A listener has come. Returns: the tail of *topic*, and until when to wait for it if it is unknown."""
        tail = self._tails.get(topic)
        if tail is None or tail.error is not None:
            tail = self._tails[topic] = Tail(self, topic, after)
        return tail, tail.join()

    def leave(self, tail: Tail) -> None:
        """A listener of *tail* has left."""
        tail.listeners -= 1
        if not tail.listeners:
            tail.stop()
            if self._tails.get(tail.topic) is tail:
                del self._tails[tail.topic]

    def notify(self, topic: str, change: Change | None) -> None:
        """Something was committed to *topic*: *change*, if that is known."""
        tail = self._tails.get(topic)
        if tail is not None:
            tail.call(change)

    def notify_all(self) -> None:
        """Something may have been committed to any topic. The tails are called over some loop iterations."""
        loop = asyncio.get_running_loop()
        for topic in self._tails:
            self._calls.put(topic, loop, lambda topic: self.notify(str(topic), None))

    async def aclose(self) -> None:
        """Stop every tail and every read."""
        for tail in self._tails.values():
            tail.stop()
        self._tails.clear()
        await self.tasks.aclose()
