"""A store in memory whose calls fail, hang or are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiopurgatory.streams import StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.store import Commit, Notify, Page


class FaultyStore(MemoryStore):
    """Args: note: called at each read and commit."""

    def __init__(self, note: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._note = note
        #: What *note* has returned at each read, commit of events, and renewal.
        self.read_in, self.written_in, self.renewed_in = list[object](), list[object](), list[object]()
        #: It tells nobody of its commits.
        self.is_mute = False
        self.is_down = False
        #: It hangs, and loses each cancellation meanwhile.
        self.hangs = False
        self.hanging = asyncio.Event()
        #: How many of its next answers it cancels.
        self.cancels = 0
        #: Tell that commits may have been missed.
        self.notify_all: Callable[[], object] = list

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        await super().open(lambda topic, change: None if self.is_mute else notify(topic, change), notify_all)
        self.notify_all = notify_all

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        await self._fault()
        self.read_in.append(self._note())
        return await super().read(topic, after, rows, size)

    async def commit(self, topic: str, commit: Commit) -> Page:
        await self._fault()
        (self.written_in if commit.rows else self.renewed_in).append(self._note())
        return await super().commit(topic, commit)

    async def _fault(self) -> None:
        if self.cancels:
            self.cancels -= 1
            pool: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            pool.cancel()  # as a closed pool may do
            await pool
        if self.hangs:
            self.hanging.set()
            try:
                await asyncio.sleep(30.0)
            except asyncio.CancelledError:
                raise StoreDownError("the client library has lost it") from None
        await asyncio.sleep(0)
        if self.is_down:
            raise StoreDownError("it is down")
