"""start() is idempotent, also for tasks that call it at the same time: code that is handed an object may start it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import Observer, Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.testing import MemoryBus, MemoryServer
from aiopurgatory.web import LongPolling


class Opened(Observer):
    """Notes each object that has opened."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def opened(self, what: Any) -> None:
        self.names.append(type(what).__name__)


class Rooms:
    def version(self, room: str) -> str:
        return "1"

    def read(self, room: str, since: str | None, version: str) -> bytes:
        return b""


KINDS: dict[str, Callable[[Opened], Any]] = {
    "Purgatory": lambda opened: Purgatory(observers=[opened]),
    "LongPolling": lambda opened: LongPolling(Purgatory(), Rooms(), stop_signals=False, observers=[opened]),
    "MemoryLog": lambda opened: MemoryLog(observers=[opened]),
    "MemoryBus": lambda opened: MemoryBus(MemoryServer(), [], observers=[opened]),
}


@pytest.mark.parametrize("name", KINDS)
async def test_start_may_be_called_by_everyone(name: str) -> None:
    opened = Opened()
    lives = KINDS[name](opened)
    await asyncio.gather(*(lives.start() for _ in range(3)))
    tasks = len(asyncio.all_tasks())
    await lives.start()
    assert (opened.names.count(name), len(asyncio.all_tasks())) == (1, tasks)
    await lives.aclose()
    await lives.start()  # it may be started again
    assert opened.names.count(name) == 2
    await lives.aclose()
