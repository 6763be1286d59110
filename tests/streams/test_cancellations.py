"""Stores that lose a cancellation, or raise one of their own, and exceptions of signal handlers at bad moments.

No task of a log goes on, or ends, because of that, and no listener is muted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest

from aiopurgatory.streams import EventLog

from .conftest import until
from .faulty import FaultyStore

Interrupt: TypeAlias = Callable[[str, str], type[BaseException]]


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("aiopurgatory log")}


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
async def log(store: FaultyStore) -> AsyncIterator[EventLog]:
    """A log with a topic of one event."""
    async with EventLog(store) as log:
        await log.append("topic", "first")
        yield log


async def test_close_ends_a_tail_that_lost_its_cancellation(store: FaultyStore, log: EventLog) -> None:
    store.hangs = True
    listener = asyncio.create_task(anext(log.follow("topic")))
    await store.hanging.wait()
    async with asyncio.timeout(20.0):
        await log.aclose()
    await asyncio.wait([listener])
    assert not others()


async def test_tail_that_lost_its_cancellation_reads_no_more(store: FaultyStore, log: EventLog) -> None:
    store.hangs = True
    listener = asyncio.create_task(anext(log.follow("topic")))
    await store.hanging.wait()
    listener.cancel()
    await asyncio.wait([listener])
    store.hangs = False
    await until(lambda: not others())


async def test_run_left_to_the_next_try_renews_its_lease_no_more(store: FaultyStore, log: EventLog) -> None:
    with pytest.raises(LookupError):  # noqa: PT012
        async with log.run("run", lease=0.1, resume=True):
            store.hangs = True
            await store.hanging.wait()
            raise LookupError
    store.hangs = False
    await until(lambda: not others())


async def test_listener_of_a_store_that_cancels_its_answer_goes_on(store: FaultyStore, log: EventLog) -> None:
    store.cancels = 1
    async with asyncio.timeout(20.0), log.follow("topic") as follow:
        assert (await anext(follow)).data == "first"


async def test_run_on_a_store_that_cancels_its_renewal_keeps_its_lease(store: FaultyStore, log: EventLog) -> None:
    async with log.run("run", lease=0.3) as run:
        store.cancels = 1
        await until(lambda: store.cancels == 0)
        renewed = len(store.renewed_in)
        await until(lambda: len(store.renewed_in) > renewed)
        await run.append("first")


async def test_append_to_a_store_that_cancels_its_answer_is_made(store: FaultyStore, log: EventLog) -> None:
    store.cancels = 1
    await log.append("topic", "second")
    async with log.follow("topic") as follow:
        assert [(await anext(follow)).data for _ in range(2)] == ["first", "second"]


async def test_append_that_is_cancelled_raises_that(store: FaultyStore, log: EventLog) -> None:
    store.cancels = 1
    append = asyncio.create_task(log.append("topic", "second"))
    await asyncio.sleep(0)
    append.cancel()
    await asyncio.wait([append], timeout=20.0)
    assert append.cancelled()


# exceptions of signal handlers


async def test_gap_whose_checks_are_interrupted_mutes_no_later_one(
    store: FaultyStore, log: EventLog, interrupt: Interrupt
) -> None:
    async with asyncio.timeout(20.0):
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


async def test_listener_interrupted_in_an_outage_ends_no_other(store: FaultyStore, interrupt: Interrupt) -> None:
    async with EventLog(store, window_bytes=0) as log, asyncio.timeout(20.0):
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
