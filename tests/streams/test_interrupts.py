"""An exception of a signal handler, at a bad moment, may end a listener. It must not mute the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiopurgatory.streams import EventLog, StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.store import Notify, Page

Interrupt = Callable[[str, str], type[BaseException]]


class Store(MemoryStore):
    """A store whose reads fail while it *is_down*, and which tells nobody of its commits while it *is_mute*."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = self.is_mute = False
        self.notify_all: Callable[[], object] = list

    async def open(self, notify: Notify, notify_all: Callable[[], object]) -> None:
        await super().open(lambda topic, change: None if self.is_mute else notify(topic, change), notify_all)
        self.notify_all = notify_all

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        await asyncio.sleep(0)
        if self.is_down:
            raise StoreDownError("it is down")
        return await super().read(topic, after, rows, size)


async def test_gap_whose_checks_are_interrupted_mutes_no_later_one(interrupt: Interrupt) -> None:
    store = Store()
    async with EventLog(store) as log, asyncio.timeout(5.0):
        topics = [f"topic {number}" for number in range(60)]
        for topic in topics:
            await log.append(topic, "first")
        follows = [log.follow(topic) for topic in topics]
        for follow in follows:
            await anext(follow)
        store.is_mute = True
        with pytest.raises(interrupt("call_soon_threadsafe", "aiopurgatory.handover")):
            store.notify_all()
        await asyncio.sleep(0.01)
        for topic in topics:
            await log.append(topic, "second")
        store.notify_all()
        assert [(await anext(follow)).data for follow in follows] == ["second"] * len(topics)
        for follow in follows:
            await follow.aclose()


async def test_listener_interrupted_in_an_outage_ends_no_other(interrupt: Interrupt) -> None:
    store = Store()
    async with EventLog(store, window_bytes=0) as log, asyncio.timeout(5.0):
        await log.append("topic", "first")
        follows = [log.follow("topic") for _ in range(2)]
        for follow in follows:
            await anext(follow)
        listeners = [asyncio.create_task(anext(follow)) for follow in follows]
        await asyncio.sleep(0.01)
        interrupted = interrupt("call_later", "aiopurgatory.streams.tail")
        await log.append("topic", "second")
        store.is_down = True
        done, (other,) = await asyncio.wait(listeners, return_when=asyncio.FIRST_COMPLETED)
        assert [type(task.exception()) for task in done] == [interrupted]
        store.is_down = False
        assert (await other).data == "second"
        for follow in follows:
            await follow.aclose()
