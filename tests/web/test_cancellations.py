"""Polls in tasks that were cancelled before, and go on: in clean-ups, shields, and after a swallowed cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import LongPolling, LongPollRoute

from .polls import Counters, settle
from .test_longpoll_async import Database

Respond = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listen to a poll from the next loop iteration on."""
    monkeypatch.setattr("aiopurgatory.web.poll.LISTEN_AFTER", 0.0)


@pytest.fixture(params=["memory", "database"])
def respond(request: pytest.FixtureRequest, purgatory: Purgatory) -> Respond:
    """Answers a poll that waits, and returns the status."""
    polling: Any = LongPolling(purgatory, Counters() if request.param == "memory" else Database(), stop_signals=False)

    async def respond(receive: Callable[[], Awaitable[Any]]) -> int:
        return int((await polling.answer("n", {"if-none-match": '"0"'}, receive=receive)).status)

    return respond


async def swallowed(respond: Callable[[], Awaitable[int]]) -> int:
    """The task has swallowed a cancellation, as asyncio does not forbid."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        return await respond()
    raise AssertionError


async def cleaning_up(respond: Callable[[], Awaitable[int]]) -> int:
    """The task cleans up, since its time is over."""
    status = 0
    try:
        async with asyncio.timeout(0):
            try:
                await asyncio.sleep(1)
            finally:
                status = await respond()
    except TimeoutError:
        return status
    raise AssertionError


async def shielded(respond: Callable[[], Awaitable[int]]) -> int:
    """The same, by AnyIO."""
    status = 0
    with anyio.move_on_after(0) as scope:
        try:
            await anyio.sleep(1)
        finally:
            with anyio.CancelScope(shield=True):
                status = await respond()
    assert scope.cancelled_caught
    return status


Place = Callable[[Callable[[], Awaitable[int]]], Coroutine[Any, Any, int]]


@pytest.mark.parametrize("place", [swallowed, cleaning_up, shielded])
async def test_poll_of_a_cancelled_task_ends_499_as_its_client_leaves(respond: Respond, place: Place) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def handle() -> int:
        return await place(lambda: respond(receive))

    task = asyncio.create_task(handle())
    await asyncio.sleep(0.01)
    await settle()
    left.set()
    async with asyncio.timeout(5):
        assert await task == 499


async def test_poll_cancelled_as_its_client_leaves_is_cancelled(respond: Respond) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, str]:
        await left.wait()
        task.cancel()  # the client's disconnect ends the poll in the same iteration
        return {"type": "http.disconnect"}

    task = asyncio.create_task(swallowed(lambda: respond(receive)))
    await asyncio.sleep(0.01)
    left.set()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


@pytest.mark.parametrize("place", [swallowed, cleaning_up, shielded])
async def test_poll_of_a_log_in_a_cancelled_task_ends_499(place: Place) -> None:
    left = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with MemoryLog() as log:
        after = await log.append("topic", "first")
        route = LongPollRoute(log)
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "query_string": b"after=" + after.encode(),
            "headers": [],
        }
        scope |= {"path_params": {"topic": "topic"}, "path": "/topic"}

        async def respond() -> int:
            await route(scope, receive, send)
            return int(sent[0]["status"])

        task = asyncio.create_task(place(respond))
        await asyncio.sleep(0.05)
        left.set()
        async with asyncio.timeout(5):
            assert await task == 499
