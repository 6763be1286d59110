"""Testing a long poll by httpx' client: the app runs in the event loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from aiopurgatory import Purgatory
from aiopurgatory.testing import ManualClock

from .app import make_app


@pytest.fixture
async def client(purgatory: Purgatory) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_app(purgatory))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def test_poll_is_answered_by_the_next_message(
    client: httpx.AsyncClient, purgatory: Purgatory, manual_clock: ManualClock
) -> None:
    poll = asyncio.create_task(client.get("/messages"))
    await manual_clock.settle()  # until the request is parked
    assert purgatory.num_delayed == 1

    assert (await client.post("/messages", params={"text": "hello"})).json() == 1
    assert (await poll).json() == ["hello"]


async def test_poll_is_answered_204_after_30_seconds(client: httpx.AsyncClient, manual_clock: ManualClock) -> None:
    poll = asyncio.create_task(client.get("/messages"))
    await manual_clock.advance(29.999)
    assert not poll.done()
    await manual_clock.advance(0.001)
    assert poll.result().status_code == 204
