"""Polls in tasks that were cancelled before, and go on: in clean-ups, shields, and after a swallowed cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.streams import MemoryLog
from aiopurgatory.web import LogPolling, LongPolling

from .exchange import Messages
from .polls import KNOWN, Counters, Database, settle

Respond = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]
pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture(params=["memory", "database", "log"])
async def respond(request: pytest.FixtureRequest, purgatory: Purgatory) -> AsyncIterator[Respond]:
    """Answers a poll that waits, and returns the status."""
    async with MemoryLog() as log:
        headers = KNOWN
        match request.param:
            case "log":
                polling: Any = LogPolling(log)
                headers = {"if-none-match": '"{}"'.format(await log.append("n", "first"))}
            case "memory":
                polling = LongPolling(purgatory, Counters(), stop_signals=False)
            case _:
                polling = LongPolling(purgatory, Database(), stop_signals=False)

        async def respond(receive: Callable[[], Awaitable[Any]]) -> int:
            return int((await polling.answer("n", headers, receive=receive)).status)

        yield respond


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


async def shielded(respond: Callable[[], Awaitable[int]]) -> int:
    """The task cleans up, since its time is over."""
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


@pytest.mark.parametrize("place", [swallowed, shielded])
async def test_poll_of_a_cancelled_task_ends_499_as_its_client_leaves(respond: Respond, place: Place) -> None:
    client = Messages()
    task = asyncio.create_task(place(lambda: respond(client.receive)))
    await asyncio.sleep(0.05)
    await settle()
    client.leave()
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
