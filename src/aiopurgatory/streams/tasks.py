"""Tasks that end with their log, and the reads among them that listeners share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar, final

from ..errors import NotFoundError, PurgatoryClosedError
from .event import Event
from .store import Page, Store
from .topic_state import TopicState, state_of
from .writes import Appending

#: The most events of a read, and the bytes after which it has no further one.
MAX_ROWS: Final = 1_000
MAX_SIZE: Final = 256 << 10
#: The most reads under way for listeners that are behind.
MAX_READS: Final = 8

T = TypeVar("T")


@final
class Tasks:
    """Tasks of a log. An exception of theirs that nobody awaits is not reported."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin a task. Args: name: its work and its topic."""
        task = asyncio.create_task(coroutine, name=f"aiopurgatory log: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def aclose(self, patience: float = 0.0) -> None:
        """Cancel the tasks that have not ended after *patience* seconds, and wait for them."""
        if self._tasks and patience > 0:
            await asyncio.wait(self._tasks, timeout=patience)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class Older(NamedTuple):
    """Events for listeners that are behind; and the number of the first of them, or else of the next event."""

    state: TopicState
    events: tuple[Event, ...]
    first: int


@final
class SharedReads:
    """Reads topics of *store*. Listeners that are behind, all at the same place, share a read (S10)."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store, self._tasks = store, tasks
        #: Reads for listeners that are behind, by topic and number.
        self._older: dict[tuple[str, int], asyncio.Task[Older]] = {}
        #: For each of these reads, how many listeners wait for it.
        self._readers: Counter[asyncio.Task[Older]] = Counter()
        self._turns: Final = asyncio.Semaphore(MAX_READS)
        self.count = self.abandoned = 0

    async def read(self, topic: str, after: int) -> Page:
        """Read *topic*. Raises: StoreError; StoreDownError, which an outage is."""
        self.count += 1
        return await self._store.read(topic, after, MAX_ROWS, MAX_SIZE)

    async def older(self, topic: str, after: int) -> Older:
        """Read events for a listener that is behind.

        Raises:
            NotFoundError: the topic was deleted.
            StoreError; StoreDownError, which an outage is.
            PurgatoryClosedError: the log was closed meanwhile.
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

    async def abandon(self, topic: str, page: Page) -> None:
        """End the run as abandoned, unless something was committed since *page* (S6). Raises: StoreDownError."""
        write = Appending("abandoned", None, is_end=True)(page, state_of(page))
        if write.commit is not None:
            made = await self._store.commit(topic, write.commit)
            self.abandoned += made.version == write.commit.version

    async def _read_older(self, topic: str, after: int) -> Older:
        async with self._turns:
            page = await self.read(topic, after)
        state = state_of(page)
        if state is None:
            raise NotFoundError(f"the topic is not there any more: {topic!r}")
        events = tuple([state.event(row) for row in page.rows])
        return Older(state, events, page.rows[0][0] if page.rows else state.last + 1)
