"""The writer: makes changes of one topic, one at a time, through outages and other writers' changes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, final

from ..clock import backoff, running_loop
from ..errors import PurgatoryError
from .event import StoreDownError, StoreError
from .store import NEWEST, Page, Store
from .topic_state import LOST, PAUSE, TopicState, has_lost, state_of
from .writes import Decide, Stamp, Write

#: Seconds between two attempts while the server is down: the first pause, and the longest.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0


@final
class Writer:
    """Changes *topic*.

    Args:
        ready: awaited before each attempt. It starts the log, and raises if that is closed, or cannot be started.
        made: called with each change that was made.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        ready: Callable[[], Awaitable[object]],
        made: Callable[[str, Write], object],
    ) -> None:
        self._store, self._topic, self._ready, self._made = store, topic, ready, made
        #: The topic as it was last, if that is known, its state, and when that was.
        self._page: Page | None = None
        self._state: TopicState | None = None
        self._at = 0.0
        #: The state with the highest number that the server has acknowledged, or returned, in the newest generation.
        self._highest: TopicState | None = None
        self._turn: Final = asyncio.Lock()
        self._name: Final = secrets.token_hex(4)
        self._serial = 0
        #: The last error of an outage that has not ended yet, and when it was.
        self._down: StoreDownError | None = None
        self._down_at = 0.0

    def stamp(self) -> Stamp:
        """Return a new stamp, for one append (S3)."""
        self._serial += 1
        return Stamp(self._name, self._serial)

    async def write(self, decide: Decide, patience: float) -> str:
        """Make the change that *decide* wants, however often others change the topic meanwhile.

        Args: patience: seconds of an outage to wait through (S7).
        Returns: the id for the caller.
        Raises:
            StoreDownError: the outage is longer; the change may have been made.
            StoreError: the store has an error of its own.
            Exception: from *decide* or *ready*.
        """
        loop = running_loop()
        began, failures = loop.time(), 0
        # A run must renew an expired lease within the pause of the workers that see it (S6).
        longest = min(LONGEST_PAUSE, patience * PAUSE / 2)
        async with self._turn:
            # Other calls have tried while this one waited for its turn throughout the outage.
            if self._down is not None and self._down_at >= began and loop.time() >= began + patience:
                raise StoreDownError(*self._down.args) from self._down.__cause__
            is_fresh = False
            while True:
                try:
                    await self._ready()
                    is_fresh = is_fresh or self._page is None
                    write = self._decided(decide, await self._known(), is_fresh)
                    if write is None:
                        continue
                    if write.commit is None:
                        return write.id
                    page = await self._store.commit(self._topic, write.commit)
                    self._note(page, write)
                    if page.version == write.commit.version:
                        self._made(self._topic, write)
                        return write.id
                except StoreDownError as exc:
                    self._page, self._down, self._down_at = None, exc, loop.time()
                    left = began + patience - self._down_at
                    if left <= 0.0:
                        raise
                    await asyncio.sleep(min(backoff(failures, FIRST_PAUSE, longest), left))
                    failures += 1
                except StoreError:
                    await self._ready()  # it may have been closed meanwhile: then that is the reason
                    raise

    def _decided(self, decide: Decide, page: Page, is_fresh: bool) -> Write | None:
        """Decide. Returns: None: there is nothing to change, as far as is known, but the server has to be asked."""
        try:
            write = decide(page, self._state)
        except PurgatoryError as exc:
            if is_fresh:
                raise named(self._topic, exc) from None
        else:
            if is_fresh or write.commit is not None:
                return write
        self._page = None
        return None

    async def _known(self) -> Page:
        """Return the topic as it was last, with the server's time of now."""
        if self._page is None:
            self._note(await self._store.read(self._topic, NEWEST, 1, 1), None)
        page = self._page
        assert page is not None
        now = page.now + asyncio.get_running_loop().time() - self._at
        return Page(page.version, page.state, page.idle, now, page.server, page.rows)

    def _note(self, page: Page, write: Write | None) -> None:
        """Args: write: the change that was tried."""
        self._page, self._at, self._down = page, asyncio.get_running_loop().time(), None
        if write is not None and write.commit is not None and write.commit.version == page.version:  # it was made
            self._state = self._highest = write.state
            return
        state = state_of(page)
        if has_lost(state, self._highest):
            state = replace(state, server=LOST)
        else:
            self._highest = state
        self._state = state


def named(topic: str, exc: PurgatoryError) -> PurgatoryError:
    """Return *exc*, of deciding on a change of *topic*, with the topic's name."""
    return type(exc)(f"topic {topic!r}: {exc}")
