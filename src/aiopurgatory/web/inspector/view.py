"""The view: one purgatory as its open pages see it, with the polls that wait for the next snapshot and the history."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from dataclasses import asdict
from math import inf
from typing import Any, Final

from ...core.purgatory import parts_of
from ...operation import DelayedOperation
from ...purgatory import Purgatory
from ..longpoll import LongPolling
from .names import Names
from .snapshot import Row, take_clock, take_figures, take_hands, take_keys

#: Seconds between two snapshots of a purgatory.
REFRESH: Final = 1.0
#: Seconds after which an opened or closed purgatory is noticed: between two snapshots, this alone is asked.
NOTICE: Final = 0.1
#: Seconds that a poll waits for a snapshot with something new. Short: a server that stops waits for its last answers.
LONGEST_POLL: Final = 10.0
#: Seconds without a poll after which every page counts as closed; more than LONGEST_POLL.
LINGER: Final = 30.0
#: Polls that may wait at once. Each open page has one.
MAX_POLLS: Final = 100
#: Rows of the history.
HISTORY: Final = 300

#: What the charts show.
CHARTED: Final = ("pending", "completed", "expired", "cancelled", "failed")


class Poll(DelayedOperation[Row | None]):
    """A page that waits for a newer snapshot than version *seen*. Its result: the answer; None if its time is up."""

    __slots__ = ("seen", "view")

    def __init__(self, view: View, seen: int) -> None:
        super().__init__(LONGEST_POLL)
        self.view = view
        self.seen = seen

    def try_complete(self) -> bool:
        return self.view.is_newer_than(self.seen) and self.force_complete()

    def on_complete(self) -> Row | None:
        return None if self.expired else self.view.answer(self.seen)


class View:
    """Takes snapshots of a purgatory while a page is open, and answers the polls of the pages.

    It follows the purgatory through closing and starting again, in this event loop or the next.
    """

    def __init__(self, shown: Purgatory | LongPolling[Any], names: Names) -> None:
        self.polling = shown if isinstance(shown, LongPolling) else None
        self.purgatory = shown.purgatory if isinstance(shown, LongPolling) else shown
        self.names = names
        self.run = secrets.token_hex(4)  # tells apart the versions of this view and of an earlier process
        self.version = 0
        #: The last snapshot; None while no page is open.
        self.shown: Row | None = None
        #: Versions, each with the time and what the charts show.
        self.history: deque[tuple[int, list[float]]] = deque(maxlen=HISTORY)
        self.unchanged_at = -inf  # the last time at which there was nothing new
        self.polled_at = 0.0
        #: Where polls wait: a purgatory of the view's own, so that what is shown does not count the pages.
        self.polls = Purgatory("inspector")
        #: Takes the snapshots.
        self.following: asyncio.Task[None] | None = None

    def is_elsewhere(self) -> bool:
        """Does the purgatory belong to another event loop than this one, and not merely to one that is gone?"""
        loop = parts_of(self.purgatory).loop.running
        if loop is None or loop is asyncio.get_running_loop():
            return False
        return self.purgatory.is_open or not loop.is_closed()

    async def poll(self, after: str) -> Poll:
        """Wait for something newer than *after*, the cursor of the last answer; anything else means the whole."""
        self.polled_at = time.monotonic()
        if not self.polls.is_open or parts_of(self.polls).loop.running is not asyncio.get_running_loop():
            # atomic: no await; start() is one that never waits
            self.shown = None
            self.polls = Purgatory("inspector", max_pending=MAX_POLLS)
            await self.polls.start()
            self.following = asyncio.create_task(self._follow(self.polls))
        run, _, version = after.partition("-")
        is_known = run == self.run and version.isascii() and version.isdecimal() and len(version) < 16
        return self.polls.watch(Poll(self, int(version) if is_known else -1), ["news"])

    def is_newer_than(self, version: int) -> bool:
        """Is there a snapshot after *version* for a page, with the purgatory neither closed nor started since?"""
        if self.shown is None or self.version <= version:
            return False
        was_open: bool = self.shown["state"] == "open"
        return was_open == self.purgatory.is_open

    def answer(self, seen: int) -> Row:
        """The last snapshot, the time, and the history since version *seen*."""
        assert self.shown is not None
        return self.shown | {
            "cursor": f"{self.run}-{self.version}",
            "now": time.monotonic(),
            "clock": take_clock(self.purgatory),
            "hands": take_hands(self.purgatory),
            "history": [row for version, row in self.history if version > seen],
        }

    async def _follow(self, polls: Purgatory) -> None:
        """Take a snapshot every REFRESH seconds, until no page is open or the purgatory has closed."""
        seen: Row | None = None
        async with polls:
            while self.polled_at + LINGER > time.monotonic() and not self.is_elsewhere():
                figures = take_figures(self.purgatory) | {"polling": self._take_polling()}
                if figures != seen:
                    seen = figures
                    keys = await take_keys(self.purgatory, self.names)
                    self._show(figures | keys)
                self.unchanged_at = time.monotonic()
                if figures["state"] == "closed":
                    break  # a server that stops must not wait for the pages; they ask again
                await self._sleep()

    def _take_polling(self) -> Row | None:
        return None if self.polling is None else asdict(self.polling.statistics())

    async def _sleep(self) -> None:
        """Sleep for REFRESH seconds, or until the purgatory is opened or closed."""
        was_open = self.purgatory.is_open
        end = time.monotonic() + REFRESH
        while self.purgatory.is_open == was_open and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(min(left, NOTICE))

    def _show(self, snapshot: Row) -> None:
        now = time.monotonic()
        row = [snapshot["statistics"][name] for name in CHARTED]
        self.version += 1
        if self.history and self.unchanged_at > self.history[-1][1][0]:
            # The charts draw lines between rows: this one keeps them level for as long as nothing changed.
            self.history.append((self.version, [self.unchanged_at, *self.history[-1][1][1:]]))
        self.history.append((self.version, [now, *row]))
        self.shown = snapshot
        self.polls.check_and_complete("news")
