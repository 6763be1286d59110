"""What a wait must not lose in silence: cancellations, failures, ends, times of the iteration, other tasks' turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import begun, turns


class DriverError(Exception):
    """What a database driver makes of a cancellation."""


async def nothing(since: Any = None) -> None:
    return None


async def broken_by_cancellation(since: Any = None) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise DriverError("connection lost") from None


async def wait_for(purgatory: Purgatory, read: Callable[..., Any]) -> None:
    await purgatory.wait_for(read, ["key"], timeout=None, retry_on=DriverError)


async def follow(purgatory: Purgatory, read: Callable[..., Any]) -> None:
    async for _ in purgatory.follow(["key"], read, retry_on=DriverError):
        pass


ways = pytest.mark.parametrize("way", [wait_for, follow])


@ways
async def test_cancellation_that_became_an_error_is_not_survived(purgatory: Purgatory, way: Callable[..., Any]) -> None:
    task = asyncio.create_task(way(purgatory, broken_by_cancellation))
    await turns(5)
    task.cancel()
    await asyncio.wait([task], timeout=10.0)
    assert task.cancelled()
    assert purgatory.num_delayed == 0


@ways
async def test_timeout_that_became_an_error_is_a_timeout(purgatory: Purgatory, way: Callable[..., Any]) -> None:
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.01):
            await way(purgatory, broken_by_cancellation)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert purgatory.num_delayed == 0


@ways
async def test_read_that_fails_on_is_logged_each_minute(
    purgatory: Purgatory, clock: ManualClock, way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(since: Any = None) -> None:
        raise DriverError("no table 'jobs'")

    def lines() -> list[str]:
        return [record.message for record in caplog.records if "no table 'jobs'" in record.message]

    caplog.set_level(logging.WARNING, "aiopurgatory")
    tasks = [asyncio.create_task(way(purgatory, broken)) for _ in range(3)]
    await clock.advance(59.0)
    assert len(lines()) == 1
    assert "waiting for a key of the kind str" in lines()[0]
    await clock.advance(12.0)  # the longest pause, and more
    assert len(lines()) == 2
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("end", ["complete_for_key", "cancel_for_key"])
async def test_follow_that_ends_as_its_read_fails_ends(purgatory: Purgatory, end: str) -> None:
    async def read(since: Any) -> None:
        getattr(purgatory, end)("key")
        raise DriverError

    following: Any = purgatory.follow(["key"], read, retry_on=DriverError)
    with pytest.raises(StopAsyncIteration if end == "complete_for_key" else asyncio.CancelledError):
        await anext(following)


@ways
async def test_read_that_checks_its_own_key_stalls_nobody(
    purgatory: Purgatory, way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def read(since: Any = None) -> None:
        purgatory.check_and_complete("key")

    caplog.set_level(logging.WARNING, "aiopurgatory")
    task = asyncio.create_task(way(purgatory, read))
    await turns(2_500)  # others have their turns
    assert len([record for record in caplog.records if "follow at once on each other" in record.message]) == 1
    task.cancel()
    await asyncio.wait([task])


# follow()


@pytest.mark.parametrize("option", ["timeout", "idle"])
async def test_times_are_those_of_the_whole_iteration(purgatory: Purgatory, clock: ManualClock, option: str) -> None:
    """Its consumer asks for each value by a shorter timeout of its own."""
    following = purgatory.follow(["key"], nothing, **{option: 10.0})  # type: ignore[call-overload]

    async def consume() -> float:
        while True:
            try:
                async with purgatory.timeout(4.0):
                    await anext(following)
                    return clock.time()
            except TimeoutError:
                pass
            except StopAsyncIteration:
                return clock.time()

    begin = clock.time()
    task = asyncio.create_task(consume())
    await clock.advance(30.0)
    assert 10.0 <= await task - begin < 10.1


async def test_failure_beside_a_cancellation_is_raised_by_the_next_call(purgatory: Purgatory) -> None:
    following: Any = purgatory.follow(["key"], nothing)
    task = asyncio.create_task(anext(following))
    await turns(3)
    purgatory.fail_for_key("key", ValueError("the leader has changed"))
    task.cancel()
    await asyncio.wait([task])
    if task.cancelled():
        with pytest.raises(ValueError, match="leader"):
            await anext(following)
    else:
        assert isinstance(task.exception(), ValueError)


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_close_ends_an_iteration_at_any_moment(purgatory: Purgatory, is_waiting: bool) -> None:
    following: Any = purgatory.follow(["key"], nothing)
    task = asyncio.create_task(anext(following))
    await turns(3)
    if not is_waiting:
        task.cancel()
        await asyncio.wait([task])
        task = asyncio.create_task(anext(following))
    purgatory.close()
    await asyncio.wait([task])
    assert isinstance(task.exception(), StopAsyncIteration)
    with pytest.raises(PurgatoryClosedError):
        await anext(purgatory.follow(["key"], nothing))  # one that begins is refused


async def test_stop_async_iteration_of_a_read_is_an_error(purgatory: Purgatory) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    source = numbers()

    async def read(since: Any) -> tuple[int, int]:
        return 1, await anext(source)

    following = purgatory.follow(["key"], read)
    assert await anext(following) == 1
    purgatory.check_and_complete("key")
    with pytest.raises(RuntimeError, match="StopAsyncIteration"):
        await anext(following)


# wait_for()


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("more", [{}, {"default": "none"}, {"on_undelivered": print}], ids=str)
async def test_complete_for_key_looks_once_more(purgatory: Purgatory, is_awaited: bool, more: dict[str, Any]) -> None:
    rows: list[int] = []

    def look() -> int | None:
        return rows.pop() if rows else None

    async def read() -> int | None:
        return look()

    async def completed() -> Any:
        wait = purgatory.wait_for(read if is_awaited else look, ["key"], timeout=30.0, **more)
        task = asyncio.create_task(wait)
        await turns(5)
        rows.extend(found)
        purgatory.complete_for_key("key")
        return await task

    found = [7]
    assert await completed() == 7
    found = []
    if "default" in more:
        assert await completed() == "none"
    else:
        with pytest.raises(DeadlineError, match="when complete_for_key"):
            await completed()
    check_invariants(purgatory)


@pytest.mark.parametrize("timeout", [0, 0.1])
@pytest.mark.parametrize("is_awaited", [False, True])
async def test_wait_without_time_refuses_what_any_wait_refuses(timeout: float, is_awaited: bool) -> None:
    async def read() -> int:
        return 1

    condition: Any = read if is_awaited else lambda: 1
    closed = Purgatory()
    async with closed as purgatory:
        keys: Any
        for keys in ([], [[]], "orders", 7):
            with pytest.raises((TypeError, ValueError), match="key"):
                await purgatory.wait_for(condition, keys, timeout=timeout)
        assert await purgatory.wait_for(condition, ["key"], timeout=timeout) == 1
    with pytest.raises(PurgatoryClosedError):
        await closed.wait_for(condition, ["key"], timeout=timeout)
    with pytest.raises(RuntimeError, match="not started"):
        await Purgatory().wait_for(condition, ["key"], timeout=timeout)


async def test_wait_without_time_needs_no_place() -> None:
    async with Purgatory(max_pending=1) as purgatory:
        task = await begun(purgatory, nothing, timeout=None)
        assert await purgatory.wait_for(nothing, ["key"], timeout=0, default="none") == "none"
        assert await purgatory.wait_for(lambda: None, ["key"], timeout=0, default="none") == "none"
        task.cancel()
        await asyncio.wait([task])


# awaited hand-outs


class Server:
    """Hands out jobs: it has taken one before its answer is there."""

    def __init__(self, *jobs: str) -> None:
        self.jobs, self.back = list(jobs), list[str]()
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def take(self) -> str | None:
        job = self.jobs.pop(0) if self.jobs else None
        if job is not None:
            await self.answer.wait()
            if self.error is not None:
                self.jobs.append(job)  # rolled back
                raise self.error
        return job


async def test_awaited_condition_that_hands_out_nothing_is_cancelled(purgatory: Purgatory) -> None:
    """The control."""
    server = Server("job")
    task = await begun(purgatory, server.take, "jobs", timeout=None)
    task.cancel()
    await asyncio.wait([task])
    server.answer.set()
    await turns(3)
    assert (server.jobs, server.back) == ([], [])


@pytest.mark.parametrize("error", [None, ConnectionError()])
async def test_job_that_is_put_back_goes_to_another_without_a_check(
    purgatory: Purgatory, error: Exception | None, reported: list[dict[str, Any]]
) -> None:
    server = Server("job")
    first, second = [
        await begun(purgatory, server.take, "jobs", timeout=None, on_undelivered=server.jobs.append) for _ in range(2)
    ]
    first.cancel()
    await asyncio.wait([first])
    server.error = error
    server.answer.set()
    await turns(2)
    server.error = None
    await turns(10)
    assert second.result() == "job"
    assert [context["exception"] for context in reported] == ([] if error is None else [error])
    reported.clear()


async def test_aclose_waits_for_hand_outs_whose_tasks_have_left() -> None:
    purgatory, server = Purgatory(), Server("job")
    await purgatory.start()
    task = await begun(purgatory, server.take, "jobs", timeout=None, on_undelivered=server.back.append)
    closing = asyncio.create_task(purgatory.aclose())
    await turns(10)
    assert isinstance(task.exception(), PurgatoryClosedError)
    assert not closing.done()
    server.answer.set()
    await closing
    assert server.back == ["job"]
