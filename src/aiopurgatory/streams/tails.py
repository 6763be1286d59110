"""The tails of a worker."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Final, final

from ..handover import Handover
from ..purgatory import Purgatory
from .shared import SharedReads
from .store import Change, Store
from .tail import Tail, Unknown
from .tasks import Tasks
from .window import Window, Windows

#: Seconds of a loop iteration in which to call tails when all are called. Their reads take many times as long.
CALL_BUDGET: Final = 0.0002


@final
class Tails:
    """The topics that somebody follows in this worker."""

    def __init__(self, store: Store, purgatory: Purgatory, window_bytes: int, unknown_timeout: float) -> None:
        self._purgatory, self._unknown_timeout = purgatory, unknown_timeout
        self.windows: Final = Windows(window_bytes)
        self._tails: dict[str, Tail] = {}
        self._tasks: Final = Tasks()
        self.reads: Final = SharedReads(store, self._tasks)
        self._calls: Final = Handover(CALL_BUDGET)

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, topic: str, after: str | None) -> tuple[Tail, float]:
        """A listener has come. Returns: the tail of *topic*, and until when to wait for it if it is unknown."""
        tail = self._tails.get(topic)
        if tail is None or tail.error is not None:
            unknown = Unknown(self._unknown_timeout)
            tail = self._tails[topic] = Tail(topic, self.reads, self._purgatory, Window(self.windows), unknown)
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
