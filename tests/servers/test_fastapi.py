"""FastAPI's own server-sent events over follow()."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import fastapi_sse
import httpx
import pytest
from alone import serving
from private_servers import Redis
from web.polls import until  # type: ignore[import-not-found]

pytestmark = pytest.mark.servers


async def first_event(client: httpx.AsyncClient, order: str, **headers: str) -> str | None:
    """The data of the first event of *order*."""
    async with client.stream("GET", f"{order}/events", headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data"):
                return line
    return None


async def test_the_example_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await fastapi_sse.main()
    assert capsys.readouterr().out.splitlines() == ['data: "paid"', 'data: "shipped"']


async def test_streams_resume_and_leave_nothing_behind(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", redis.url())
    state: Any = fastapi_sse.app.state
    order = f"/orders/{uuid4()}"  # both loops share the Redis
    async with serving(fastapi_sse.app) as (url,), httpx.AsyncClient(base_url=url) as client:
        await client.put(order, params={"state": "paid"})
        assert await first_event(client, order) == 'data: "paid"'
        resumed = {"last-event-id": "1"}
        streams = [asyncio.create_task(first_event(client, order, **resumed)) for _ in range(5)]
        await until(lambda: state.purgatory.num_delayed == 5)
        await client.put(order, params={"state": "shipped"})
        assert await asyncio.gather(*streams) == ['data: "shipped"'] * 5
        await until(lambda: state.purgatory.num_delayed == 0)
