"""The tails of a worker, their reads, and the bounds that they share."""

from __future__ import annotations

import asyncio
from typing import Final, final

from ..errors import NotFoundError, PurgatoryClosedError
from ..purgatory import Purgatory
from .event import Event, StoreDownError, StoreError
from .rules import Appending, Keep, State, state_of
from .store import Change, Page, Store
from .tail import PAUSES, Tail
from .window import Window, Windows

#: The most events of a read, and the bytes after which it has no further one.
MAX_ROWS: Final = 1_000
MAX_SIZE: Final = 256 << 10
#: The most reads under way for listeners that are behind.
MAX_READS: Final = 8


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
        #: Reads for listeners that are behind, by topic and number (S10).
        self._older: dict[tuple[str, int], asyncio.Task[Page]] = {}
        self._turns: Final = asyncio.Semaphore(MAX_READS)
        #: Why the server could not be read last; None: it could.
        self.down: StoreDownError | None = None
        self._is_closed = False
        self.reads = self.gone = self.abandoned = 0

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, topic: str, after: str | None) -> Tail:
        """A listener has come. Returns: the tail of *topic*."""
        tail = self._tails.get(topic)
        if tail is None or tail.error is not None:
            window = Window(self.windows)
            tail = self._tails[topic] = Tail(topic, self, self._purgatory, window, self._unknown_timeout)
        tail.join(after)
        return tail

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
        """Something may have been committed to any topic."""
        for tail in self._tails.values():
            tail.call()

    def close(self) -> None:
        """Stop every tail."""
        self._is_closed = True
        for tail in self._tails.values():
            tail.stop()
        self._tails.clear()

    async def read(self, topic: str, after: int) -> Page:
        """Read *topic*. Raises: StoreDownError."""
        self.reads += 1
        try:
            page = await self._store.read(topic, after, MAX_ROWS, MAX_SIZE)
        except StoreDownError as exc:
            self.down = exc
            raise
        self.down = None
        return page

    async def older(self, topic: str, after: int) -> tuple[State, list[Event], int]:
        """Read events for a listener that is behind. Returns: the topic, the events, and the first one's number.

        Raises: NotFoundError, StoreError.
        """
        key = topic, after
        task = self._older.get(key)
        if task is None:
            task = self._older[key] = asyncio.create_task(self._read_in_turn(topic, after))
            task.add_done_callback(lambda _: self._older.pop(key).exception())  # retrieved: all may have left
        page = await asyncio.shield(task)
        state = state_of(page)
        if state is None:
            raise NotFoundError("the topic is not there any more")
        first = page.rows[0][0] if page.rows else state.last + 1
        return state, [state.event(row) for row in page.rows], first

    async def abandon(self, topic: str, page: Page) -> None:
        """End the run as abandoned, unless something was committed since *page* (S6). Raises: StoreDownError."""
        write = Appending("abandoned", None, self._keep, is_end=True)(page, state_of(page))
        if write.commit is not None:
            made = await self._store.commit(topic, write.commit, self._keep.seconds)
            self.abandoned += made.version == write.commit.version

    async def _read_in_turn(self, topic: str, after: int) -> Page:
        async with self._turns:
            while not self._is_closed:
                try:
                    return await self.read(topic, after)
                except StoreDownError:
                    await asyncio.sleep(PAUSES[1])
                except Exception as exc:
                    raise StoreError(f"the topic cannot be read: {exc!r}") from exc
        raise PurgatoryClosedError("the log was closed")
