"""What reads and appends cost a real server, and what becomes of those that it does not answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from private_servers import Redis

pytest.importorskip("redis")
from redis.asyncio import Redis as Client

from aiopurgatory.streams.redis import RedisLog

MIB = 1 << 20


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    try:
        server = Redis()
    except FileNotFoundError as exc:
        pytest.skip(f"{exc}: make programs")
    yield server.url()
    server.remove()


@pytest.mark.parametrize("small", [0, 100])
async def test_redis_read_of_large_events_loads_few(redis: str, small: int) -> None:
    topic = f"large {small}"
    async with RedisLog(redis, keep_bytes=200 * MIB) as log, Client.from_url(redis) as client:

        async def peak() -> int:
            found: int = (await client.info("memory"))["used_memory_peak"]
            return found

        for number in range(small):
            await log.append(topic, str(number))
        for _ in range(64):
            await log.append(topic, "x" * MIB)
        before = await peak()
        await log.end(topic)
        counts = [len(event.data) async for event in log.follow(topic)]
        assert counts[small:] == [MIB] * 64 + [4]
        assert await peak() - before < 24 * MIB
