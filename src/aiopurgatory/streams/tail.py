"""A tail: what a worker knows of a topic that somebody follows here."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from random import random
from typing import Final, Protocol, final

from ..errors import GoneError
from ..purgatory import Purgatory
from .event import Event, StoreDownError, StoreError
from .rules import State, Suspicion, changed, number_in, place, state_of
from .store import Change, Page
from .window import Window

logger = logging.getLogger("aiopurgatory")

#: Seconds between two attempts to read while the server is down: the first pause, and the longest.
PAUSES: Final = (0.1, 2.0)


class Reading(Protocol):
    """What a tail needs of its log."""

    async def read(self, topic: str, after: int, /) -> Page:
        """Read *topic*. Raises: StoreDownError."""
        ...

    async def abandon(self, topic: str, page: Page, /) -> None:
        """End the run as abandoned, unless something was committed since *page*. Raises: StoreDownError."""
        ...


@final
class Tail:
    """Reads *topic* for all its listeners in this worker (S10), while there are any.

    Args: unknown_timeout: seconds to wait for an unknown topic.
    """

    def __init__(
        self, topic: str, reading: Reading, purgatory: Purgatory, window: Window, unknown_timeout: float
    ) -> None:
        self.topic: Final = topic
        self._reading, self._purgatory, self.window = reading, purgatory, window
        self._loop = asyncio.get_running_loop()
        self._unknown_timeout = unknown_timeout
        self._unknown_until = -inf
        #: None: there is no such topic, as far as is known.
        self.state: State | None = None
        #: Changes whenever a listener must compare its id with the topic again.
        self.lineage: object = None
        #: Changes whenever a listener has something to do.
        self.turn = 0
        self.error: StoreError | None = None
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
        self._woken: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, after: str | None) -> None:
        """A listener has come. Args: after: its id, or None. The first listener's is where this begins to read."""
        self.listeners += 1
        self._unknown_until = self._loop.time() + self._unknown_timeout
        if self._task is None:
            self._id, self.last = after, number_in(after)
            self._task = self._loop.create_task(self._run(), name=f"aiopurgatory log: {self.topic[:50]}")
        elif self.state is None:
            self.call()

    def part(self) -> None:
        """A listener has left."""
        self.listeners -= 1

    def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
        self.window.clear()

    def call(self, change: Change | None = None) -> None:
        """Something may have been committed: *change*, if that is known. If it comes next, nothing needs to be read."""
        if change is not None and self.state is not None and self._is_waiting() and self._version == change.expected:
            page = Page(change.version, "", 0.0, 0.0, "", change.rows)
            self._due = self._loop.time() + self._take(page, changed(self.state, change))
        elif change is None or self._version != change.version:
            self._is_called = True
            self._wake()

    def is_unknown(self) -> bool:
        """Whether the topic has not come in time (S9)."""
        return self.state is None and self._loop.time() >= self._unknown_until

    def since(self, number: int) -> list[Event] | None:
        """Return the events after *number*. None: the window does not reach back so far."""
        behind = self.last - number
        return self.window.newest(behind) if behind <= len(self.window) else None

    async def _run(self) -> None:
        pause = PAUSES[0]
        try:
            while True:
                self._is_called = False
                try:
                    page = await self._reading.read(self.topic, self.last)
                    left = self._take(page, state_of(page))
                    if left == 0.0:  # S6
                        await self._reading.abandon(self.topic, page)
                    pause = PAUSES[0]
                except StoreDownError:
                    left, pause = pause * (0.5 + random()), min(2 * pause, PAUSES[1])
                if left > 0.0 and not self._is_called:
                    await self._wait(left)
        except Exception as exc:
            logger.exception("the topic %r cannot be read; its listeners end", self.topic)
            self.error = StoreError(f"the topic cannot be read: {exc!r}")
            self.error.__cause__ = exc
            self._change()

    def _take(self, page: Page, state: State | None) -> float:
        """Take what was read. Returns: seconds until the next read, unless it is called before; 0: see S6."""
        self._version = page.version
        if state is None:
            return self._take_nothing()
        former, self.state = self.state, state
        is_changed = former is None or (former.epoch, former.generations) != (state.epoch, state.generations)
        if is_changed:
            self.lineage = object()
            try:
                self.last = place(state, self._id)
            except GoneError:  # of S1: what was read is lost, and so may be what the page has
                self._jump(state)
                page.rows.clear()
        if page.rows and page.rows[0][0] != self.last + 1:  # S2: what comes next is gone
            self._jump(state)
            is_changed = True
        elif page.rows:
            for row in page.rows:
                self.window.add(event := state.event(row))
            self.last, self._id = page.rows[-1][0], event.id
            is_changed = True
        elif self.last != state.last:  # S2: none of what comes next is there
            self._jump(state)
            is_changed = True
        if is_changed:
            self._change()
        return 1e-9 if self.last < state.last else self._suspicion.look(page, state)

    def _take_nothing(self) -> float:
        if self.state is not None:  # it was deleted
            self.state, self.lineage, self.last = None, object(), 0
            self.window.clear()
            self._change()
        left = self._unknown_until - self._loop.time()
        if left > 0.0:
            return left
        self._change()
        return inf

    def _jump(self, state: State) -> None:
        """Go on after the newest event. Listeners compare their ids with the topic."""
        self.lineage = object()
        self.window.clear()
        self.last, self._id = state.last, state.id_of(state.last)

    def _change(self) -> None:
        self.turn += 1
        self._purgatory.notify(self.topic)

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _is_waiting(self) -> bool:
        return self._woken is not None and not self._woken.done()

    async def _wait(self, seconds: float) -> None:
        """Wait for a call, or *seconds*, or for as long as what is taken meanwhile demands."""
        self._due = self._loop.time() + seconds
        while not self._is_called and (left := self._due - self._loop.time()) > 0.0:
            self._woken = self._loop.create_future()
            timer = None if left == inf else self._loop.call_later(left, self._wake)
            try:
                await self._woken
            finally:
                self._woken = None
                if timer is not None:
                    timer.cancel()
