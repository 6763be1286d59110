"""The tails of a worker, their reads, and the bounds that they share."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import Context
from typing import Final, NamedTuple, final

from ..errors import PurgatoryClosedError
from ..handover import Handover
from ..purgatory import Purgatory
from .event import Event
from .rules import State, state_of
from .store import Change, Page, Store
from .tail import Tail
from .tasks import Tasks
from .window import Window, Windows
from .writes import Appending

#: The most events of a read, and the bytes after which it has no further one.
MAX_ROWS: Final = 1_000
MAX_SIZE: Final = 256 << 10
#: The most reads under way for listeners that are behind.
MAX_READS: Final = 8
#: Seconds of a loop iteration in which to call tails when all are called. Their reads take many times as long.
CALL_BUDGET: Final = 0.0002


class Older(NamedTuple):
    """Events for listeners that are behind; and the number of the first of them, or else of the next event."""

    state: State
    events: tuple[Event, ...]
    first: int


@final
class Tails:
    """The topics that somebody follows in this worker."""

    def __init__(self, store: Store, purgatory: Purgatory, window_bytes: int, unknown_timeout: float) -> None:
        self._store, self._purgatory = store, purgatory
        self._unknown_timeout = unknown_timeout
        self.windows: Final = Windows(window_bytes)
        self._tails: dict[str, Tail] = {}
        self._tasks: Final = Tasks()
        #: Reads for listeners that are behind, by topic and number (S10).
        self._older: dict[tuple[str, int], asyncio.Task[Older | None]] = {}
        #: For each of these reads, how many listeners wait for it.
        self._readers: Counter[asyncio.Task[Older | None]] = Counter()
        self._turns: Final = asyncio.Semaphore(MAX_READS)
        self._calls: Final = Handover(CALL_BUDGET)
        self.reads = self.abandoned = 0

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, topic: str, after: str | None) -> tuple[Tail, float]:
        """A listener has come. Returns: the tail of *topic*, and until when to wait for it if it is unknown."""
        tail = self._tails.get(topic)
        if tail is None or tail.error is not None:
            window = Window(self.windows)
            tail = Tail(topic, self.read, self._abandon, self._purgatory, window, self._unknown_timeout)
            self._tails[topic] = tail
        until = tail.join(after)
        if tail.task is None:
            # In an empty context: it outlives the request of its first listener.
            tail.task = Context().run(self._tasks.begin, tail.run(), topic[:50])
        return tail, until

    def leave(self, tail: Tail) -> None:
        """A listener of *tail* has left."""
        tail.listeners -= 1
        if tail.listeners == 0:
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
        await self._tasks.aclose()

    async def read(self, topic: str, after: int) -> Page:
        """Read *topic*. Raises: StoreError; StoreDownError, which an outage is."""
        self.reads += 1
        return await self._store.read(topic, after, MAX_ROWS, MAX_SIZE)

    async def older(self, topic: str, after: int) -> Older | None:
        """Read events for a listener that is behind; all at the same place share the read (S10).

        Returns: None: there is no such topic.
        Raises: StoreError; StoreDownError, which an outage is; PurgatoryClosedError: the log was closed meanwhile.
        """
        key = topic, after
        read = self._older.get(key)
        if read is None or read.done():
            name = f"older events of {topic[:50]}"
            read = self._older[key] = Context().run(self._tasks.begin, self._read_older(topic, after), name)
        self._readers[read] += 1
        try:
            await asyncio.wait((read,))
        finally:
            self._readers[read] -= 1
            if not self._readers[read]:
                del self._readers[read]
                read.cancel()
                if self._older.get(key) is read:
                    del self._older[key]
        if read.cancelled():
            raise PurgatoryClosedError("the log was closed")
        return read.result()

    async def _abandon(self, topic: str, page: Page) -> None:
        """End the run as abandoned, unless something was committed since *page* (S6). Raises: StoreDownError."""
        write = Appending("abandoned", None, is_end=True)(page, state_of(page))
        if write.commit is not None:
            made = await self._store.commit(topic, write.commit)
            self.abandoned += made.version == write.commit.version

    async def _read_older(self, topic: str, after: int) -> Older | None:
        async with self._turns:
            page = await self.read(topic, after)
        state = state_of(page)
        if state is None:
            return None
        events = tuple([state.event(row) for row in page.rows])
        return Older(state, events, page.rows[0][0] if page.rows else state.last + 1)
