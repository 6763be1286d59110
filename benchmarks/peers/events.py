"""Let requests wait on an asyncio.Event: one per key, or one for each key of a request as in Ray Serve.

Do its own mistakes decide the result? An Event wakes all waiters of its key, though one may be meant: that is the shape
itself. On Python 3.11, wait_for() makes a task for each wait: 1.5 us more than ``asyncio.timeout()``. It is used
because most users write it so. futures.py shows the other way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from time import monotonic

from .base import Tally, Tasks


class Condition:
    """The Event of one key, and how many requests wait for it."""

    __slots__ = ("event", "waiting")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0


class EventPerKey:
    """An asyncio.Event per key and wait_for().

    A task can wait for one Event at a time, so a request waits under its first key only. An Event wakes all its
    waiters. Each then checks its condition, and waits again if it does not hold.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.tasks = Tasks()
        self._conditions: dict[Hashable, Condition] = {}

    async def start(self) -> None:
        pass

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> Hashable:
        self.tasks.start(self._handle(keys[0], monotonic() + timeout, deadline, completes_at, payload))
        return keys[0]

    async def _handle(self, key: Hashable, until: float, deadline: float, completes_at: float, payload: bytes) -> None:
        while (now := monotonic()) < completes_at:
            if now >= until:
                self.tally.late(now - deadline)
                return
            await self._wait(key, until - now)
        self.tally.completed += 1

    async def _wait(self, key: Hashable, timeout: float) -> None:
        condition = self._conditions.get(key)
        if condition is None:
            condition = self._conditions[key] = Condition()
        condition.waiting += 1
        try:
            await asyncio.wait_for(condition.event.wait(), timeout)
        except TimeoutError:  # not contextlib.suppress(), which takes longer
            pass
        finally:
            condition.waiting -= 1
            if condition.waiting == 0 and self._conditions.get(key) is condition:
                del self._conditions[key]

    def complete(self, key: Hashable) -> None:
        # The next waiter makes a new one, so it need not be cleared.
        condition = self._conditions.pop(key, None)
        if condition is not None:
            condition.event.set()

    check = complete

    def pending(self) -> int:
        return len(self.tasks)

    async def stop(self) -> None:
        await self.tasks.stop()


class RayShape:
    """Ray Serve's LongPollHost: an Event and a task for each key of a request, and wait() for the first of them."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.tasks = Tasks()
        self._events: dict[Hashable, set[asyncio.Event]] = {}

    async def start(self) -> None:
        pass

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> asyncio.Event:
        first = asyncio.Event()
        self.tasks.start(self._handle(first, keys, monotonic() + timeout, deadline, completes_at, payload))
        return first

    async def _handle(
        self,
        first: asyncio.Event,
        keys: tuple[Hashable, ...],
        until: float,
        deadline: float,
        completes_at: float,
        payload: bytes,
    ) -> None:
        while (now := monotonic()) < completes_at:
            if now >= until:
                self.tally.late(now - deadline)
                return
            await self._wait_for_any(first, keys, until - now)
        self.tally.completed += 1

    async def _wait_for_any(self, first: asyncio.Event, keys: tuple[Hashable, ...], timeout: float) -> None:
        events = [first, *(asyncio.Event() for _ in keys[1:])]
        for key, event in zip(keys, events, strict=True):
            self._events.setdefault(key, set()).add(event)
        tasks = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._leave(keys, events)
            first.clear()

    def _leave(self, keys: tuple[Hashable, ...], events: list[asyncio.Event]) -> None:
        for key, event in zip(keys, events, strict=True):
            waiting = self._events.get(key)
            if waiting is not None:
                waiting.discard(event)
                if not waiting:
                    del self._events[key]

    def complete(self, first: asyncio.Event) -> None:
        """Its first key has changed, and nobody else waits for it."""
        first.set()

    def check(self, key: Hashable) -> None:
        for event in self._events.pop(key, ()):
            event.set()

    def pending(self) -> int:
        return len(self.tasks)

    async def stop(self) -> None:
        await self.tasks.stop()
