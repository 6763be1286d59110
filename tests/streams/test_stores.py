"""The cost of reads and appends on a real server, and their fate if it does not answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic

import pytest
from private_servers import Postgres, Redis, Server

pytest.importorskip("redis")
pytest.importorskip("asyncpg")

import asyncpg
from redis.asyncio import Redis as Client

from aiopurgatory.streams import EventLog, StoreDownError
from aiopurgatory.streams.postgres import PostgresLog
from aiopurgatory.streams.redis import RedisLog

from .conftest import make_tables, started

MIB = 1 << 20


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    for server in started(Redis):
        yield server.url()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    for server in started(Postgres):
        asyncio.run(make_tables(server.url()))
        yield server.url()


@pytest.mark.parametrize("small", [0, 100])
async def test_redis_read_of_large_events_loads_few(redis: str, topic: str, small: int) -> None:
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


async def test_postgres_reads_of_many_topics_delay_neither_each_other_nor_appends(postgres: str) -> None:
    """After a gap, each topic is read. The reads take longer than the server may take for one."""
    listeners = 6_000
    async with PostgresLog(postgres, timeout=0.3, heartbeat=0.3, connections=2) as log:
        follows = [log.follow(f"many {number}") for number in range(listeners)]
        reading = [asyncio.ensure_future(anext(follow)) for follow in follows]
        while log.statistics().reads < listeners:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await log.append("many 0", "a")
        assert (await reading[0]).data == "a"
        await log.append("many 5999", "b")
        assert (await reading[-1]).data == "b"
        assert log.statistics().reads < 1.5 * listeners  # a read that fails is repeated
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


async def test_postgres_read_that_gets_no_connection_is_an_outage(postgres: str) -> None:
    async with PostgresLog(postgres, timeout=0.5, connections=1) as log:
        await log.append("x", "a")
        blocker = await asyncpg.connect(postgres)
        try:
            async with blocker.transaction():
                await blocker.execute('LOCK TABLE "events_topics"')
                began = monotonic()
                reads = await asyncio.gather(*(log.last_id("x") for _ in range(20)), return_exceptions=True)
                assert all(isinstance(read, StoreDownError) for read in reads)
                assert monotonic() - began < 2.5
        finally:
            await blocker.close()
        assert await log.last_id("x") is not None


@pytest.mark.parametrize("kind", [Redis, Postgres])
async def test_log_of_a_server_that_is_not_up_yet_starts_later(kind: type[Server]) -> None:
    for server in started(kind):
        url = server.url()
        if kind is Postgres:
            await make_tables(url)
        server.kill()
        log: EventLog = RedisLog(url) if kind is Redis else PostgresLog(url)
        with pytest.raises(StoreDownError, match="check that it is running"):
            await log.start()
        with pytest.raises(StoreDownError):
            await log.last_id("x")
        append = asyncio.create_task(log.append("x", "a", timeout=60.0))
        await asyncio.sleep(0.2)
        assert not append.done()
        server.start()
        assert await append == await log.last_id("x")
        await log.aclose()
