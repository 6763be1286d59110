"""Snapshots of purgatories, as the source of the pages' long polls."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from dataclasses import asdict
from math import inf
from typing import Any, Final

from ...bus import Bus
from ...clock import running_loop
from ...core.kit import core_of
from ...purgatory import Purgatory
from ...streams import EventLog
from ..polling import LongPolling
from .snapshot import Names, Row, take_clock, take_figures, take_hands, take_keys

#: Seconds between two snapshots of a purgatory.
REFRESH: Final = 1.0
#: Seconds within which an opened or closed purgatory is noticed.
NOTICE: Final = 0.1
#: The most rows of the history.
HISTORY: Final = 300

#: The statistics in the charts.
CHARTED: Final = ("pending", "completed", "expired", "cancelled", "failed")


class View:
    """Takes snapshots of a purgatory, and keeps their history.

    It follows the purgatory through closing and starting again, in this event loop or the next.
    """

    def __init__(self, shown: Purgatory | LongPolling[Any] | EventLog, buses: Sequence[Bus], names: Names) -> None:
        self.polling = shown if isinstance(shown, LongPolling) else None
        self.log = shown if isinstance(shown, EventLog) else None
        self.purgatory = shown if isinstance(shown, Purgatory) else shown.purgatory
        self.buses = buses
        self.names = names
        self.run = secrets.token_hex(4)  # distinguishes this view's versions from an earlier process's
        self.number = 0
        self.snapshot: Row = {}
        #: The figures of the last snapshot, to see whether anything is new; and when it began and ended.
        self.figures: Row | None = None
        self.looked_at = self.began_at = -inf
        self.was_open = False
        #: For each snapshot its number, its time, and the values that the charts show.
        self.history: deque[tuple[int, list[float]]] = deque(maxlen=HISTORY)

    @property
    def version(self) -> str:
        """The version of the last snapshot."""
        return f"{self.run}-{self.number}"

    def is_elsewhere(self) -> bool:
        """Whether the purgatory belongs to another event loop that still exists."""
        loop = core_of(self.purgatory).loop.running
        if loop is None or loop is asyncio.get_running_loop():
            return False
        return self.purgatory.is_open or not loop.is_closed()

    def is_due(self) -> bool:
        """Whether it is time for another snapshot."""
        is_old = time.monotonic() >= self.began_at + REFRESH
        is_due = is_old or not self.snapshot or self.purgatory.is_open != self.was_open
        return is_due and not self.is_elsewhere()

    async def look(self) -> None:
        """Take a snapshot, if anything has changed since the last one."""
        self.was_open, self.began_at = self.purgatory.is_open, time.monotonic()
        polling = None if self.polling is None else asdict(self.polling.statistics())
        log = None if self.log is None else asdict(self.log.statistics())
        figures = take_figures(self.purgatory, self.names) | {"polling": polling, "log": log}
        buses = [asdict(bus.statistics()) for bus in self.buses]
        if figures != self.figures:
            keys = await take_keys(self.purgatory, self.names)
            self.figures, self.snapshot = figures, figures | keys
            self._keep(buses)
        elif buses != self.snapshot["buses"]:
            self._keep(buses)
        self.looked_at = time.monotonic()

    def since(self, version: str | None) -> Row:
        """The last snapshot, the time, and the history since *version*: all of it if *version* is unknown."""
        seen = next((number for number, _ in self.history if version == f"{self.run}-{number}"), -1)
        return self.snapshot | {
            "cursor": self.version,
            "now": time.monotonic(),
            "clock": take_clock(self.purgatory),
            "hands": take_hands(self.purgatory),
            "history": [row for number, row in self.history if number > seen],
        }

    def _keep(self, buses: list[Row]) -> None:
        row = [self.snapshot["statistics"][name] for name in CHARTED]
        self.snapshot["buses"] = buses
        self.number += 1
        if self.history and self.looked_at > self.history[-1][1][0]:
            # The charts draw lines between rows: this one keeps them level for as long as nothing changed.
            self.history.append((self.number, [self.looked_at, *self.history[-1][1][1:]]))
        self.history.append((self.number, [time.monotonic(), *row]))


class Views:
    """The source of the pages' polls. Its resources are the numbers of the views.

    While a page polls, each view takes a snapshot every REFRESH seconds; otherwise, never.

    Args:
        common: a part of every answer.
        polls: the purgatory in which the polls wait.
    """

    def __init__(self, views: Sequence[View], common: Row, polls: Purgatory) -> None:
        self._views, self._common, self._polls = views, common, polls
        self._following: asyncio.Task[None] | None = None

    def __getitem__(self, number: int) -> View:
        return self._views[number]

    def __len__(self) -> int:
        return len(self._views)

    async def version(self, number: int) -> str:
        following, loop = self._following, running_loop()
        if following is None or following.done() or following.get_loop() is not loop:
            # In an empty context: it outlives the request of the first page.
            self._following = Context().run(loop.create_task, self._follow(), name="aiopurgatory inspector")
        view = self._views[number]
        if view.is_due():
            await view.look()
        return view.version

    async def read(self, number: int, since: str | None, version: str) -> bytes:
        # Not by JSONResponse, which fails if a name is not valid UTF-8.
        common = self._common | {"pid": os.getpid()}
        return json.dumps(common | self._views[number].since(since), allow_nan=False).encode()

    async def _follow(self) -> None:
        """Notify the polls of due snapshots, until no poll waits."""
        while True:
            await asyncio.sleep(min(NOTICE, REFRESH))
            if not self._polls.num_delayed:
                break
            for number, view in enumerate(self._views):
                if view.is_due():
                    self._polls.notify(number)
