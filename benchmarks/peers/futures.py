"""Keep a Future per request in a dict of sets, and asyncio.timeout() around it, as asyncio users do.

Do its own mistakes decide the result? None is known: a future a request, a set entry a key, and the cheapest timeout of
asyncio. The task of each request belongs to any server that awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from time import monotonic

from .base import Tally, Tasks


class FuturePerRequest:
    """Keeps the future under every key, so that an event on any of them finds it."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.tasks = Tasks()
        self._waiting: dict[Hashable, set[asyncio.Future[None]]] = {}

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def request(
        self, keys: tuple[Hashable, ...], timeout: float, deadline: float, completes_at: float, payload: bytes
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self.tasks.start(self._handle(future, keys, timeout, deadline, completes_at, payload))
        return future

    async def _handle(
        self,
        future: asyncio.Future[None],
        keys: tuple[Hashable, ...],
        timeout: float,
        deadline: float,
        completes_at: float,
        payload: bytes,
    ) -> None:
        if monotonic() < completes_at:
            for key in keys:
                self._waiting.setdefault(key, set()).add(future)
            try:
                async with asyncio.timeout(timeout):
                    await future
            except TimeoutError:
                if monotonic() < completes_at:
                    self.tally.late(monotonic() - deadline)
                    return
            finally:
                self._leave(future, keys)
        self.tally.completed += 1

    def _leave(self, future: asyncio.Future[None], keys: tuple[Hashable, ...]) -> None:
        for key in keys:
            waiting = self._waiting[key]
            waiting.discard(future)
            if not waiting:
                del self._waiting[key]

    def complete(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    def check(self, key: Hashable) -> None:
        """Complete every future under *key*."""
        for future in list(self._waiting.get(key, ())):
            self.complete(future)

    def pending(self) -> int:
        return len(self.tasks)

    async def stop(self) -> None:
        await self.tasks.stop()
