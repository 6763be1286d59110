"""python -m buses.worker SETTINGS: a process with parked polls and a bus.

The audit: a parked poll is lost if the version that it saw is not the one in the table.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from typing import Any

from aiopurgatory import DelayedOperation, Purgatory

from . import member
from .events import watcher
from .servers import bus_on


class Poll(DelayedOperation[None]):
    __slots__ = ("key", "seen", "worker")

    def __init__(self, worker: Worker, key: int) -> None:
        super().__init__(timeout=3600.0)
        self.worker, self.key = worker, key
        self.seen = worker.events.versions[key]

    def try_complete(self) -> bool:
        return self.worker.events.versions[self.key] != self.seen and self.force_complete()

    def on_complete(self) -> None:
        self.worker.woken(self.key)


class Worker(member.Member):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.purgatory = Purgatory("polls")
        self.polls: dict[int, Poll] = {}
        self.bytes_per_poll = 0.0

    async def connect(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.purgatory)
        mine = [key for key in range(self.keys) if watcher(key, self.workers) == self.number]
        before = member.memory()
        for key in mine:
            self.park(key)
        self.bytes_per_poll = (member.memory() - before) / len(mine)
        heartbeat, timeout = self.config["heartbeat"], self.config["timeout"]
        bus = bus_on(self.config["url"], [self.purgatory], heartbeat=heartbeat, timeout=timeout)
        self.bus = await stack.enter_async_context(bus)

    def park(self, key: int) -> None:
        self.polls[key] = self.purgatory.watch(Poll(self, key), [("orders", key)])

    def woken(self, key: int) -> None:
        self.arrived(key)
        asyncio.get_running_loop().call_soon(self.park, key)

    def publish(self, key: int) -> None:
        self.bus.publish(("orders", key))

    def more(self) -> dict[str, Any]:
        statistics = self.bus.statistics()
        return {
            "received": statistics.received,
            "connected": statistics.connected,
            "gaps": statistics.gaps,
            "outbox": statistics.outbox,
            "never_woken": sum(poll.seen != self.events.versions[key] for key, poll in self.polls.items()),
            "bytes_per_poll": self.bytes_per_poll,
        }

    async def do_received(self) -> int:
        return self.bus.statistics().received

    async def do_flood(self, seconds: float, batch: int, ahead: int, distinct: int) -> int:
        """Publish keys that nobody watches, as fast as the server takes them. Returns: how many.

        The outbox holds at most ``batch * (ahead + 1)`` keys: over 10,000 it would collapse.

        Args: ahead: batches that are published while earlier ones are not acknowledged. distinct: different keys.
        """
        stop = time.monotonic() + seconds
        flushes: deque[asyncio.Task[None]] = deque()
        published = 0
        while time.monotonic() < stop:
            for number in range(published, published + batch):
                self.bus.publish(("nobody", number % distinct))
            published += batch
            flushes.append(asyncio.create_task(self.bus.flush()))
            await asyncio.sleep(0)
            if len(flushes) > ahead:
                await flushes.popleft()
        await asyncio.gather(*flushes)
        return published


if __name__ == "__main__":
    member.run(Worker)
