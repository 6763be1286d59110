"""The tails of a worker, their reads, and the bounds that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final, NamedTuple, final

from ..errors import PurgatoryClosedError
from ..purgatory import Purgatory
from .event import Event
from .rules import State, state_of
from .store import Change, Page, Store, asked
from .tail import Tail
from .tasks import Tasks
from .window import Window, Windows
from .writes import Appending, Keep

#: The most events of a read, and the bytes after which it has no further one.
MAX_ROWS: Final = 1_000
MAX_SIZE: Final = 256 << 10
#: The most reads under way for listeners that are behind.
MAX_READS: Final = 8
#: Tails that are called in one loop iteration when all are.
CALLS: Final = 50


class Older(NamedTuple):
    """Events for listeners that are behind; and the number of the first of them, or else of the next event."""

    state: State
    events: tuple[Event, ...]
    first: int


@final
class Tails:
    """The topics that somebody follows in this worker."""

    def __init__(
        self, store: Store, purgatory: Purgatory, keep: Keep, window_bytes: int, unknown_timeout: float
    ) -> None:
        self._store, self._purgatory, self._keep = store, purgatory, keep
        self._unknown_timeout = unknown_timeout
        self.windows: Final = Windows(window_bytes)
        self._tails: dict[str, Tail] = {}
        self._tasks: Final = Tasks()
        #: Reads for listeners that are behind, by topic and number (S10).
        self._older: dict[tuple[str, int], _SharedRead] = {}
        self._turns: Final = asyncio.Semaphore(MAX_READS)
        #: Tails still to be called, because everything is; and whether the loop is going to call _call_some().
        self._uncalled: list[Tail] = []
        self._is_calling = False
        self.reads = self.abandoned = 0

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, topic: str, after: str | None) -> tuple[Tail, float]:
        """A listener has come. Returns: the tail of *topic*, and until when to wait for it if it is unknown."""
        tail = self._tails.get(topic)
        if tail is None or tail.error is not None:
            window = Window(self.windows)
            tail = self._tails[topic] = Tail(topic, self, self._purgatory, window, self._unknown_timeout)
        return tail, tail.join(after)

    def leave(self, tail: Tail) -> None:
        """A listener of *tail* has left."""
        tail.part()
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
        self._uncalled = list(self._tails.values())
        if not self._is_calling:
            self._call_some()

    async def aclose(self) -> None:
        """Stop every tail and every read."""
        for tail in self._tails.values():
            tail.stop()
        self._tails.clear()
        self._uncalled.clear()
        await self._tasks.aclose()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin a task of a tail, in an empty context: it outlives the request of its first listener."""
        return Context().run(self._tasks.begin, coroutine, name)

    async def read(self, topic: str, after: int) -> Page:
        """Read *topic*. Raises: StoreError; StoreDownError, which an outage is."""
        self.reads += 1
        return await asked(self._store.read(topic, after, MAX_ROWS, MAX_SIZE))

    async def older(self, topic: str, after: int) -> Older | None:
        """Read events for a listener that is behind; all at the same place share the read (S10).

        Returns: None: there is no such topic.
        Raises: StoreError; StoreDownError, which an outage is; PurgatoryClosedError: the log was closed meanwhile.
        """
        key = topic, after
        shared = self._older.get(key)
        if shared is None or shared.task.done():
            read = self._read_older(topic, after)
            task = Context().run(self._tasks.begin, read, f"older events of {topic[:50]}")
            shared = self._older[key] = _SharedRead(task)
        shared.readers += 1
        try:
            await asyncio.wait((shared.task,))
        finally:
            shared.readers -= 1
            if shared.readers == 0:
                shared.task.cancel()
                if self._older.get(key) is shared:
                    del self._older[key]
        if shared.task.cancelled():
            raise PurgatoryClosedError("the log was closed")
        return shared.task.result()

    async def abandon(self, topic: str, page: Page) -> None:
        """End the run as abandoned, unless something was committed since *page* (S6). Raises: StoreDownError."""
        write = Appending("abandoned", None, self._keep, is_end=True)(page, state_of(page))
        if write.commit is not None:
            made = await asked(self._store.commit(topic, write.commit, self._keep.seconds))
            self.abandoned += made.version == write.commit.version

    def _call_some(self) -> None:
        self._is_calling = False
        try:
            for _ in range(min(CALLS, len(self._uncalled))):
                self._uncalled.pop().call()
        finally:  # even after an exception of a signal handler
            if self._uncalled:
                asyncio.get_running_loop().call_soon(self._call_some)
                self._is_calling = True

    async def _read_older(self, topic: str, after: int) -> Older | None:
        async with self._turns:
            page = await self.read(topic, after)
        state = state_of(page)
        if state is None:
            return None
        events = tuple([state.event(row) for row in page.rows])
        return Older(state, events, page.rows[0][0] if page.rows else state.last + 1)


@final
class _SharedRead:
    __slots__ = ("readers", "task")

    def __init__(self, task: asyncio.Task[Older | None]) -> None:
        self.task, self.readers = task, 0
