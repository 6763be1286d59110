"""FastAPI's own server-sent events over follow()."""

from __future__ import annotations

import asyncio
from typing import Any

import fastapi_sse
import httpx
import pytest
from alone import serving
from private_servers import Redis

from .conftest import until

pytestmark = pytest.mark.servers


async def first_events(client: httpx.AsyncClient, number: int, **headers: str) -> list[str]:
    """The data of the first events of order 8."""
    found: list[str] = []
    async with client.stream("GET", "/orders/8/events", headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data"):
                found.append(line)
            if len(found) == number:
                break
    return found


async def test_the_example_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await fastapi_sse.main()
    assert capsys.readouterr().out.splitlines() == ['data: "paid"', 'data: "shipped"']


async def test_streams_resume_and_leave_nothing_behind(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", redis.url())
    state: Any = fastapi_sse.app.state
    async with serving(fastapi_sse.app) as (url,), httpx.AsyncClient(base_url=url) as client:
        await client.put("/orders/8", params={"state": "paid"})
        assert await first_events(client, 1) == ['data: "paid"']
        streams = [asyncio.create_task(first_events(client, 1, **{"last-event-id": "1"})) for _ in range(5)]
        await until(lambda: state.purgatory.num_delayed == 5)
        await client.put("/orders/8", params={"state": "shipped"})
        assert await asyncio.gather(*streams) == [['data: "shipped"']] * 5
        await until(lambda: state.purgatory.num_delayed == 0)
