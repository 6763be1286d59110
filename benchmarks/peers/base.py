"""Define the interface of a competitor, and their common parts."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine, Hashable, Iterator
from time import monotonic
from typing import Any, Protocol


class Peer(Protocol):
    """Parks requests under keys until something completes them or they time out.

    When woken, a parked request checks whether ``monotonic() >= completes_at``, which stands in for a condition.
    """

    tally: Tally

    async def start(self) -> None:
        """Start in the running loop."""

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        """Park a request for *timeout* seconds, that is, at least until *deadline*. Returns: its handle."""

    def complete(self, handle: Any) -> object:
        """Complete a request at its *completes_at*."""

    def check(self, key: Hashable) -> object:
        """Wake the requests under *key* to check their conditions."""

    def pending(self) -> int:
        """Return the number of parked requests."""

    async def stop(self) -> None:
        """Stop, and release everything."""


class Tally:
    """Counts how requests ended."""

    __slots__ = ("completed", "late", "lateness")

    def __init__(self) -> None:
        self.completed = 0
        self.lateness = array("d")
        #: Called for each time-out with its lateness in seconds.
        self.late = self.lateness.append

    @property
    def ended(self) -> int:
        return self.completed + len(self.lateness)


def request_class(operation: Any) -> Any:
    """The operation of Kafka's benchmark for a purgatory's class of operations, so that each runs the same hooks."""

    class Request(operation):  # type: ignore[misc]
        __slots__ = ("completes_at", "deadline", "payload", "tally")

        def __init__(self, timeout: float, deadline: float, completes_at: float, payload: bytes, tally: Tally) -> None:
            super().__init__(timeout)
            self.deadline = deadline
            self.completes_at = completes_at
            self.payload = payload
            self.tally = tally

        def try_complete(self) -> Any:
            return monotonic() >= self.completes_at and self.force_complete()

        def on_complete(self) -> None:
            if self.expired:
                self.tally.late(monotonic() - self.deadline)
            else:
                self.tally.completed += 1

    return Request


class Tasks:
    """Keeps a task for each request, as a server does. The event loop keeps no strong reference to tasks."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._running)

    def start(self, handler: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(handler)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
