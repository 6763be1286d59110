"""A log in memory, for tests, and for a service of one process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

from .log import EventLog, LogOptions
from .store import Change, Commit, Notify, Page, Row, Store


class MemoryLog(EventLog):
    """An EventLog in the memory of one process, in one event loop.

    It keeps topics until they are ``keep_seconds`` old, or this object is gone.

    Args: options: as for EventLog.
    """

    def __init__(self, **options: Unpack[LogOptions]) -> None:
        super().__init__(MemoryStore(), **options)


@dataclass(slots=True)
class _Topic:
    version: str = ""
    state: str = ""
    archive: str = ""
    touched: float = 0.0
    expires: float = 0.0
    rows: list[Row] = field(default_factory=list)


class MemoryStore(Store):
    """A store in memory. Args: clock: returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._server = secrets.token_hex(4)
        #: By the time of the last commit, the oldest first.
        self._topics: OrderedDict[str, _Topic] = OrderedDict()
        self._notify: Notify | None = None

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        self._notify = notify

    async def aclose(self) -> None:
        self._notify = None

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        kept = self._topics.get(topic) or _Topic()
        found: list[Row] = []
        if kept.rows and after < kept.rows[-1][0]:
            start = max(0, after + 1 - kept.rows[0][0])
            for row in kept.rows[start : start + rows]:
                found.append(row)
                size -= len(row[1])
                if size <= 0:
                    break
        return self._page(kept, found)

    async def commit(self, topic: str, commit: Commit) -> Page:
        now = self._clock()
        kept = self._topics.get(topic) or _Topic()
        if kept.version == commit.expected and commit.server == self._server:
            if not kept.version:
                while self._topics and next(iter(self._topics.values())).expires <= now:
                    self._topics.popitem(last=False)
                self._topics[topic] = kept
            kept.version, kept.state, kept.touched = commit.version, commit.state, now
            kept.archive, kept.expires = commit.archive or kept.archive, now + commit.keep
            kept.rows += commit.rows
            if kept.rows and kept.rows[0][0] < commit.first:
                del kept.rows[: commit.first - kept.rows[0][0]]
            self._topics.move_to_end(topic)
            if self._notify is not None:
                change = Change(commit.expected, commit.version, commit.rows) if commit.is_plain else None
                asyncio.get_running_loop().call_soon(self._notify, topic, change)
        return self._page(kept, [])

    def _page(self, topic: _Topic, rows: list[Row]) -> Page:
        now = self._clock()
        return Page(topic.version, topic.state, now - topic.touched, now, self._server, rows, topic.archive)
