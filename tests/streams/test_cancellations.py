"""Stores that lose a cancellation, or raise one of their own: no task of a log goes on, or ends, because of that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory.streams import EventLog, StoreDownError
from aiopurgatory.streams.memory import MemoryStore
from aiopurgatory.streams.store import Commit, Page


class Store(MemoryStore):
    """A store in memory that hangs, and loses each cancellation meanwhile; or that cancels its next answers."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.hanging = asyncio.Event()
        self.cancels = 0
        self.reads = 0

    async def read(self, topic: str, after: int, rows: int, size: int) -> Page:
        self.reads += 1
        await self.fault()
        return await super().read(topic, after, rows, size)

    async def commit(self, topic: str, commit: Commit, keep: float) -> Page:
        await self.fault()
        return await super().commit(topic, commit, keep)

    async def fault(self) -> None:
        if self.cancels:
            self.cancels -= 1
            pool: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            pool.cancel()  # as a closed pool may do
            await pool
        if self.hangs:
            self.hanging.set()
            try:
                await asyncio.sleep(30.0)
            except asyncio.CancelledError:
                raise StoreDownError("the client library has lost it") from None


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("aiopurgatory log")}


async def none_left() -> None:
    """The store can be used again: each task of the log ends at its next step."""
    async with asyncio.timeout(3.0):
        while others():  # noqa: ASYNC110 no event tells
            await asyncio.sleep(0.01)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def log(store: Store) -> EventLog:
    return EventLog(store)


async def test_close_ends_a_tail_that_lost_its_cancellation(store: Store, log: EventLog) -> None:
    async with log:
        await log.append("topic", "first")
        store.hangs = True
        listener = asyncio.create_task(anext(log.follow("topic")))
        await store.hanging.wait()
        async with asyncio.timeout(5.0):
            await log.aclose()
    await asyncio.wait([listener])
    assert not others()


async def test_tail_that_lost_its_cancellation_reads_no_more(store: Store, log: EventLog) -> None:
    async with log:
        await log.append("topic", "first")
        store.hangs = True
        listener = asyncio.create_task(anext(log.follow("topic")))
        await store.hanging.wait()
        listener.cancel()
        await asyncio.wait([listener])
        store.hangs = False
        await none_left()


async def test_run_left_to_the_next_try_renews_its_lease_no_more(store: Store, log: EventLog) -> None:
    async with log:
        with pytest.raises(LookupError):  # noqa: PT012
            async with log.run("topic", lease=0.1, resume=True):
                store.hangs = True
                await store.hanging.wait()
                raise LookupError
        store.hangs = False
        await none_left()


async def test_listener_of_a_store_that_cancels_its_answer_goes_on(store: Store, log: EventLog) -> None:
    async with log, asyncio.timeout(5.0):
        await log.append("topic", "first")
        store.cancels = 1
        assert (await anext(log.follow("topic"))).data == "first"


async def test_run_on_a_store_that_cancels_its_renewal_keeps_its_lease(store: Store, log: EventLog) -> None:
    async with log, log.run("topic", lease=0.3) as run:
        await run.append("first")
        store.cancels = 1
        await asyncio.sleep(0.3 * 0.7)
        assert store.cancels == 0
        assert others()
        await run.append("second")


async def test_append_to_a_store_that_cancels_its_answer_is_made(store: Store, log: EventLog) -> None:
    async with log:
        store.cancels = 1
        await log.append("topic", "first")
        follow = log.follow("topic")
        assert (await anext(follow)).data == "first"
        await follow.aclose()


async def test_append_that_is_cancelled_raises_that(store: Store, log: EventLog) -> None:
    async with log:
        await log.append("topic", "first")
        store.cancels = 1
        append = asyncio.create_task(log.append("topic", "second"))
        await asyncio.sleep(0)
        append.cancel()
        await asyncio.wait([append], timeout=5.0)
        assert append.cancelled()
