"""start() is idempotent, also for tasks that call it at the same time: code that is handed an object may start it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bus.waits import Told  # type: ignore[import-not-found]
from web.polls import Given  # type: ignore[import-not-found]

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling

KINDS: dict[str, Callable[[Told], Any]] = {
    "Purgatory": lambda told: Purgatory(observers=[told]),
    "LongPolling": lambda told: LongPolling(Purgatory(), Given(), stop_signals=False, observers=[told]),
    "MemoryLog": lambda told: MemoryLog(observers=[told]),
    "MemoryBus": lambda told: MemoryBus(MemoryServer(), [], observers=[told]),
}


@pytest.mark.parametrize("name", KINDS)
async def test_start_may_be_called_by_everyone(name: str) -> None:
    told = Told()
    lives = KINDS[name](told)
    await asyncio.gather(*(lives.start() for _ in range(3)))
    tasks = len(asyncio.all_tasks())
    await lives.start()
    assert (told.of.count(("opened", lives)), len(asyncio.all_tasks())) == (1, tasks)
    await lives.aclose()
    await lives.start()  # it may be started again
    assert told.of.count(("opened", lives)) == 2
    await lives.aclose()
