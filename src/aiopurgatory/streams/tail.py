"""A tail: a worker's knowledge of a topic that has listeners here."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections.abc import Awaitable, Callable
from math import floor, inf
from random import random
from typing import Final, final

from ..backoff import backoff
from ..errors import GoneError
from ..purgatory import Purgatory
from .event import Event, StoreDownError
from .rules import State, Suspicion, changed, number_in, place, state_of
from .store import Change, Page
from .window import Window

logger = logging.getLogger("aiopurgatory")

#: Seconds between two attempts to read while the server is down: the first pause, and the longest.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: The part of the time for an unknown topic that is added to it at most, so that clients don't return in a herd.
SPREAD: Final = 1 / 16
#: Looks in the time for an unknown topic.
_LOOKS: Final = 64


@final
class Tail:
    """Reads *topic* for all its listeners in this worker (S10), while there are any.

    Args:
        read: reads a topic after a number. Raises: StoreError; StoreDownError, which an outage is.
        abandon: ends the run of a topic as abandoned, unless something was committed since a page.
        unknown_timeout: seconds to wait for an unknown topic; infinite: it is an empty one.
    """

    def __init__(
        self,
        topic: str,
        read: Callable[[str, int], Awaitable[Page]],
        abandon: Callable[[str, Page], Awaitable[None]],
        purgatory: Purgatory,
        window: Window,
        unknown_timeout: float,
    ) -> None:
        self.topic: Final = topic
        self._read, self._abandon, self._purgatory, self.window = read, abandon, purgatory, window
        self._loop = asyncio.get_running_loop()
        self._unknown_timeout = unknown_timeout
        #: When to end listeners of an unknown topic that have waited long enough (S9), the earliest time first.
        self._looks: list[float] = []
        #: Of these times, so that topics don't end their listeners together.
        self._phase = random()
        #: None: there is no such topic, as far as is known.
        self.state: State | None = None
        #: Whether there was none at the last read.
        self.is_absent = False
        #: Changes whenever a listener must compare its id with the topic again.
        self.lineage: object = None
        #: Changes whenever a listener has something to do.
        self.turn = 0
        #: Why the topic cannot be read any more.
        self.error: Exception | None = None
        self.listeners = 0
        #: The newest event that was read: its number and its id.
        self.last = 0
        self._id: str | None = None
        #: The version of the topic that was read.
        self._version = ""
        self._suspicion: Final = Suspicion()
        #: When to read again, if this is not called before.
        self._due = inf
        self._is_called = False
        #: Wake all listeners after the next read, even if it finds nothing.
        self._is_owed = False
        self._woken: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        #: It runs run(), from the first listener on.
        self.task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def join(self, after: str | None) -> float:
        """A listener has come.

        Args: after: its id, or None. The first listener's is where this begins to read.
        Returns: until when to wait for an unknown topic.
        """
        self.listeners += 1
        until = self._loop.time() + self._unknown_timeout * (1 + SPREAD * random())
        if self.state is None:
            self._look_at(until)
        if self.task is None:
            self._id, self.last = after, number_in(after)
        elif self.state is None:
            self.call()
        return until

    def stop(self) -> None:
        """Read no more."""
        self._is_stopped = True  # a client library may lose the cancellation
        if self.task is not None:
            self.task.cancel()
        self.window.clear()

    def call(self, change: Change | None = None) -> None:
        """Something may have been committed: *change*, if that is known. If it comes next, nothing needs to be read."""
        if change is not None and self.state is not None and self._is_waiting() and self._version == change.expected:
            page = Page(change.version, "", 0.0, 0.0, "", change.rows)
            self._due = self._loop.time() + self._take(page, changed(self.state, change))
        elif change is None or self._version != change.version:
            self._is_called = True
            self._wake()

    def retry(self) -> None:
        """A listener cannot read older events: turn the listeners when the server can be read again."""
        if not self._is_owed:
            self._loop.call_later(backoff(0, FIRST_PAUSE, LONGEST_PAUSE), self.call)
            self._is_owed = True

    def since(self, number: int, most: int) -> list[Event] | None:
        """Return the events after *number*, but at most *most*. None: the window does not reach back so far."""
        behind = self.last - number
        return self.window.newest(behind, most) if behind <= len(self.window) else None

    async def run(self) -> None:
        """Read whenever this is called, or it is time to."""
        failures = 0
        try:
            while not self._is_stopped:
                self._is_called = False
                try:
                    page = await self._read(self.topic, self.last)
                    left = self._take(page, state_of(page))
                    if self._is_owed:
                        self._is_owed = False
                        self._change()
                    if left == 0.0:  # S6
                        await self._abandon(self.topic, page)
                    failures = 0
                except StoreDownError:
                    self._suspicion.forget()
                    left = backoff(failures, FIRST_PAUSE, LONGEST_PAUSE)
                    failures += 1
                if left > 0.0 and not self._is_called:
                    await self._wait(left)
        except Exception as exc:
            logger.exception("the topic %r cannot be read; its listeners end", self.topic)
            self.error = exc
            self.window.clear()
            self._change()

    def _take(self, page: Page, state: State | None) -> float:
        """Take the *page* just read. Returns: seconds until the next read, unless it is called before; 0: see S6."""
        self._version = page.version
        if state is None:
            return self._take_nothing()
        former, self.state, self.is_absent = self.state, state, False
        self._looks.clear()
        is_changed = former is None or (former.epoch, former.generations) != (state.epoch, state.generations)
        if is_changed:
            self.lineage = object()
            try:
                self.last = place(state, self._id)
            except GoneError:  # S1: the events read before are lost, and perhaps those of the page, too
                self._jump(state)
                page.rows.clear()
        if page.rows and page.rows[0][0] != self.last + 1:  # S2: the next event is gone
            self._jump(state)
            is_changed = True
        elif page.rows:
            events = [state.event(row) for row in page.rows]
            for event in events:
                self.window.add(event)
            self.last, self._id = page.rows[-1][0], events[-1].id
            is_changed = True
        elif self.last != state.last:  # S2: all newer events are gone
            self._jump(state)
            is_changed = True
        if is_changed:
            self._change()
        return 1e-9 if self.last < state.last else self._suspicion.look(page, state, self._loop.time())

    def _take_nothing(self) -> float:
        now = self._loop.time()
        is_due, self.is_absent = not self.is_absent, True
        if self.state is not None:  # it was deleted
            self.state, self.lineage, self.last, self._id = None, object(), 0, None
            self.window.clear()
            # For listeners that have come, and not looked yet.
            self._look_at(now + self._unknown_timeout * (1 + SPREAD))
        while self._looks and self._looks[0] <= now:
            del self._looks[0]
            is_due = True
        if is_due:
            self._change()
        return self._looks[0] - now if self._looks else inf

    def _look_at(self, until: float) -> None:
        """Turn the listeners at *until*, or a small part of their time later: so there are few such looks."""
        if until == inf:
            return
        step = max(self._unknown_timeout / _LOOKS, 0.01)
        look = (floor(until / step - self._phase) + 1 + self._phase) * step
        if look not in self._looks:
            insort(self._looks, look)
        while len(self._looks) > 1 and self._looks[1] <= self._loop.time():
            del self._looks[0]  # the server is down

    def _jump(self, state: State) -> None:
        """Go on after the newest event. Listeners compare their ids with the topic."""
        self.lineage = object()
        self.window.clear()
        self.last, self._id = state.last, state.id_of(state.last)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is done when the turn changes. Many may wait for it: none may cancel it."""
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    def _change(self) -> None:
        self.turn += 1
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
        self._purgatory.notify(self.topic)

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _is_waiting(self) -> bool:
        return self._woken is not None and not self._woken.done()

    async def _wait(self, seconds: float) -> None:
        """Wait for a call, or *seconds*. A wake-up taken meanwhile may change the time."""
        self._due = self._loop.time() + seconds
        while not self._is_called and (left := self._due - self._loop.time()) > 0.0:
            self._woken = self._loop.create_future()
            try:
                await asyncio.wait([self._woken], timeout=None if left == inf else left)
            finally:
                self._woken = None
