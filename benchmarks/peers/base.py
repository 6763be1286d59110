"""Define the interface of a competitor, and what the competitors share."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine, Hashable, Iterator
from time import monotonic
from typing import Any, Protocol


class Peer(Protocol):
    """A way to park requests under keys until something completes them or their time is up.

    Whoever parks a request asks, when woken, whether ``monotonic() >= completes_at``: the stand-in for a condition.
    """

    tally: Tally

    async def start(self) -> None:
        """In the running loop."""

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Any:
        """Park a request: for *timeout* seconds, which is until *deadline* at the earliest. Returns: its handle."""

    def complete(self, handle: Any) -> object:
        """The request's *completes_at* has come."""

    def check(self, key: Hashable) -> object:
        """Something happened to *key*: whoever waits there looks."""

    def pending(self) -> int:
        """How many requests wait."""

    async def stop(self) -> None:
        """Leave nothing behind."""


class Tally:
    """How requests ended."""

    __slots__ = ("completed", "late", "lateness")

    def __init__(self) -> None:
        self.completed = 0
        self.lateness = array("d")
        #: To be called with the seconds from the deadline to the time-out, for each that timed out.
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
    """A task for each request: a server's handlers. The event loop keeps no strong reference to them."""

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
