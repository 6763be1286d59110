"""A bus that a request starts outlives it, and has none of its context variables."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

from aiopurgatory.bus.server import ServerBus
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.testing.bus import MemoryEngine

from .waits import Recorder, until


class Seeing(Recorder):
    """A target that notes the session in which it is called."""

    def __init__(self, requests: Any) -> None:
        super().__init__()
        self.requests = requests
        self.seen = list[object]()

    def notify(self, key: Hashable, limit: int | None = None) -> None:
        super().notify(key)
        self.seen.append(self.requests.session.get())

    def notify_all(self) -> None:
        super().notify_all()
        self.seen.append(self.requests.session.get())


async def test_bus_started_in_a_request_does_not_keep_its_session(requests: Any) -> None:
    async with MemoryBus(MemoryServer(), [], heartbeat=0.05) as other:
        bus = MemoryBus(MemoryServer(), [Recorder()], heartbeat=0.05)
        session = await requests.handle(bus.start)
        await asyncio.sleep(0.1)
        assert bus.statistics().connected
        assert requests.are_over(session)
        await bus.aclose()
        assert other.statistics().connected


async def test_targets_see_no_session_of_the_request_that_started_the_bus(requests: Any) -> None:
    server, target = MemoryServer(), Seeing(requests)
    engine = MemoryEngine(server)
    bus = ServerBus(engine, [target], heartbeat=0.05, spread=0.01)
    await requests.handle(bus.start)
    async with MemoryBus(server, []) as other:
        other.publish("key")
        await until(lambda: target.keys == ["key"])
        engine.break_off()  # a timer checks everything
        await until(lambda: target.everything == 2)
    await bus.aclose()
    assert set(target.seen) == {None}
