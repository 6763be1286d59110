"""Each way for a listener to leave frees its place."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from weakref import ref

import anyio
import pytest

from aiopurgatory import GoneError, NotFoundError
from aiopurgatory.streams import Event, EventLog, Follow, MemoryLog
from aiopurgatory.streams.log import position_in
from aiopurgatory.testing import check_invariants
from aiopurgatory.testing.manual_clock import settle

from .conftest import assert_no_tasks, data_of


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    """A log with a topic of two events. At the end, nothing may be left of listeners, but its own tasks."""
    async with MemoryLog() as log:
        await log.append("x", "a")
        await log.append("x", "b")
        before = asyncio.all_tasks()
        yield log
        await left(log)
        await assert_no_tasks(before)


def assert_empty(log: EventLog) -> None:
    found = log.statistics()
    assert (found.listeners, found.topics, found.window_bytes) == (0, 0, 0)
    check_invariants(log.purgatory)


async def left(log: EventLog) -> None:
    """Wait a moment, and assert that nobody follows."""
    await settle(lambda: True)
    assert_empty(log)


async def waiting(log: EventLog) -> None:
    """Let a consumer take both events, and wait."""
    await settle(lambda: True)
    assert log.statistics().listeners == 1


async def cancel_after(turns: int, task: asyncio.Task[Any]) -> None:
    """Cancel *task* after so many iterations of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


# by itself


async def breaks(log: EventLog) -> None:
    async for event in log.follow("x"):
        assert event.data == "a"
        break


async def raises(log: EventLog) -> None:
    with suppress(LookupError):
        async for _ in log.follow("x"):
            raise LookupError


async def raises_in_a_with_block(log: EventLog) -> None:
    with suppress(LookupError):
        async with log.follow("x") as events:
            await anext(events)
            raise LookupError
    assert_empty(log)  # at once, even if somebody keeps the exception


async def keeps_in_a_cycle(log: EventLog) -> None:
    holder: list[Any] = [log.follow("x")]
    holder.append(holder)
    await anext(holder[0])


async def drops_in_another_thread(log: EventLog) -> None:
    held = [log.follow("x")]
    await anext(held[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


async def breaks_a_generator(log: EventLog) -> None:
    async def lines() -> AsyncIterator[str]:
        async for event in log.follow("x"):
            yield event.data

    async for _ in lines():
        break


async def breaks_a_generator_with_a_block(log: EventLog) -> None:
    async def lines() -> AsyncIterator[str]:
        async with log.follow("x") as events:
            async for event in events:
                yield event.data

    async for _ in lines():
        break


LEFT = (breaks, raises, raises_in_a_with_block, keeps_in_a_cycle, drops_in_another_thread)


@pytest.mark.parametrize("leave", [*LEFT, breaks_a_generator, breaks_a_generator_with_a_block])
async def test_listener_that_leaves_frees_the_place(log: EventLog, leave: Callable[[EventLog], Any]) -> None:
    await leave(log)
    gc.collect()
    await left(log)


async def test_end_frees_the_place_before_the_last_event_is_taken(log: EventLog) -> None:
    await log.end("x")
    events = log.follow("x")
    await anext(events)
    assert_empty(log)
    assert [event.data async for event in events] == ["b", "done"]


@pytest.mark.parametrize(("topic", "after", "error"), [("x", "gone-1", GoneError), ("y", None, NotFoundError)])
async def test_error_frees_the_place(topic: str, after: str | None, error: type[Exception]) -> None:
    async with MemoryLog(unknown_timeout=0) as log:
        await log.append("x", "a")
        events = log.follow(topic, after)
        with pytest.raises(error):
            await anext(events)
        assert_empty(log)


# cancelled


async def test_cancelled_while_busy_frees_the_place(log: EventLog) -> None:
    async def work() -> None:
        async for _ in log.follow("x"):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await waiting(log)
    await cancel_after(0, task)
    del task
    await left(log)


@pytest.mark.parametrize("turns", range(8))
async def test_cancelled_at_any_moment_frees_the_place(log: EventLog, turns: int) -> None:
    task = asyncio.create_task(data_of(log, "x"))
    await cancel_after(turns, task)
    await left(log)


@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_before_the_log_has_started_frees_the_place(turns: int) -> None:
    log = MemoryLog()
    await cancel_after(turns, asyncio.create_task(data_of(log, "x")))
    await left(log)
    await log.aclose()


async def test_unknown_topic_is_forgotten_with_its_listener() -> None:
    async with MemoryLog(unknown_timeout=1e5) as log:
        position = await position_in(log, "unknown", None)
        tail = ref(position._tail)
        for _ in range(2):  # idempotent
            position.leave()
        del position
        await settle(lambda: True)
        gc.collect()
        assert tail() is None


async def test_timeout_frees_the_place_and_loses_nothing(log: EventLog) -> None:
    events, got = log.follow("x"), []
    for number in range(4):
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.02):
                    got.append((await anext(events)).data)
        assert_empty(log)
        await log.append("x", str(number))
    await log.end("x")
    got += [event.data async for event in events]
    assert got == ["a", "b", "0", "1", "2", "3", "done"]


async def test_cancelled_by_anyio_while_cleaning_up_frees_the_place(log: EventLog) -> None:
    async def follow() -> None:
        try:
            await data_of(log, "x")
        finally:
            await anyio.sleep(60)  # also cancelled

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(follow)
        await anyio.sleep(0.02)
        assert log.statistics().listeners == 5
        group.cancel_scope.cancel()
    assert_empty(log)


# closed


async def test_aclose_frees_the_place(log: EventLog) -> None:
    events = log.follow("x")
    await anext(events)
    assert log.statistics().listeners == 1
    await events.aclose()
    assert_empty(log)
    await events.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


@pytest.mark.parametrize("turns", range(6))
async def test_aclose_by_another_task_ends_the_iteration(log: EventLog, turns: int) -> None:
    events = log.follow("x")
    task = asyncio.create_task(collect(events))
    for _ in range(turns):
        await asyncio.sleep(0)
    await events.aclose()
    assert len(await task) <= 2
    await left(log)


async def collect(events: Follow) -> list[Event]:
    return [event async for event in events]


async def test_next_by_two_tasks_is_refused(log: EventLog) -> None:
    events = log.follow("x")
    await anext(events)
    await anext(events)
    first = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task waits for the next event; follow"):
        await anext(events)
    await log.append("x", "c")
    assert (await first).data == "c"
    await events.aclose()


async def test_task_that_nobody_keeps_does_not_lose_its_place(log: EventLog) -> None:
    got: list[str] = []

    async def listen() -> None:
        async for event in log.follow("x"):
            got.append(event.data)

    asyncio.create_task(listen())  # noqa: RUF006
    await waiting(log)
    gc.collect()
    await log.end("x")
    await settle(lambda: True)
    assert got == ["a", "b", "done"]


async def take_one(log: EventLog, events: Follow) -> None:
    await log.append("x", "a")
    await anext(events)


async def produce(log: EventLog) -> None:
    async with log.run("y"):
        await asyncio.sleep(60)


@pytest.mark.parametrize("kind", ["listener", "waiting listener", "run"])
def test_closed_loop_leaves_no_warning(new_loop: Callable[[], asyncio.AbstractEventLoop], kind: str) -> None:
    """The loop is closed without cancelling its tasks."""
    unraised: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraised.append

    def use() -> None:
        log, loop = MemoryLog(), new_loop()
        events = log.follow("x")
        loop.run_until_complete(take_one(log, events))
        if kind == "waiting listener":
            loop.create_task(anext(events))
        if kind == "run":
            loop.create_task(produce(log))
        loop.run_until_complete(asyncio.sleep(0.01))
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    try:
        use()
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert unraised == []


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Objects left by earlier tests must not end in the middle of a test."""
    gc.collect()
