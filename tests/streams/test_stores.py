"""The cost of reads and appends on a real server, and their fate if it does not answer in time."""

from __future__ import annotations

import asyncio
from itertools import count

import anyio
import pytest
from bus.servers import no_connections  # type: ignore[import-not-found]
from private_servers import Postgres, Redis, Server

pytest.importorskip("redis")
pytest.importorskip("asyncpg")

import asyncpg
from redis.asyncio import Redis as Client

from aiopurgatory.streams import StoreDownError, postgres
from aiopurgatory.streams.postgres import PostgresLog
from aiopurgatory.streams.redis import RedisLog

from .conftest import ended, log_at, until

MIB = 1 << 20


@pytest.mark.parametrize("small", [0, 100])
async def test_redis_read_of_large_events_loads_few(own_redis: Redis, topic: str, small: int) -> None:
    url = own_redis.url()
    async with RedisLog(url, keep_bytes=200 * MIB) as log, Client.from_url(url) as client:

        async def peak() -> int:
            found: int = (await client.info("memory"))["used_memory_peak"]
            return found

        for number in range(small):
            await log.append(topic, str(number))
        for _ in range(64):
            await log.append(topic, "x" * MIB)
        before = await peak()
        counts = [len(data) for data in await ended(log, topic)]
        assert counts[small:] == [MIB] * 64 + [4]
        assert await peak() - before < 24 * MIB


async def test_postgres_reads_of_many_topics_delay_neither_each_other_nor_appends(
    own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a gap, each topic is read. Together, the reads take longer than the server may for one."""
    listeners = 30
    monkeypatch.setattr(postgres, "_READ", postgres._READ + ", pg_sleep(0.2)")
    async with PostgresLog(own_postgres.url(), timeout=2.5, connections=2) as log:
        follows = [log.follow(f"many {number}") for number in range(listeners)]
        reading = [asyncio.ensure_future(anext(follow)) for follow in follows]
        await until(lambda: log.statistics().reads == listeners)
        for number in (0, -1):
            await log.append(f"many {number % listeners}", "a", timeout=0.0)
            assert (await reading[number]).data == "a"
        assert log.statistics().reads < 1.5 * listeners  # a read that fails is repeated
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


async def test_postgres_read_that_gets_no_connection_is_an_outage(own_postgres: Postgres) -> None:
    url, timeout = own_postgres.url(), 3.0  # longer than a loaded machine needs to connect
    async with PostgresLog(url, timeout=timeout, connections=1) as log:
        await log.append("x", "a")
        blocker = await asyncpg.connect(url)
        async with blocker.transaction(), asyncio.timeout(4 * timeout):
            await blocker.execute('LOCK TABLE "events_topics"')
            reads = await asyncio.gather(*(log.last_id("x") for _ in range(20)), return_exceptions=True)
            assert all(isinstance(read, StoreDownError) for read in reads)
        await blocker.close()
        assert await log.last_id("x") is not None


async def test_postgres_start_that_anyio_cancels_leaves_no_connection(own_postgres: Postgres) -> None:
    """It cancels at each await, so also the clean-up."""
    calls = count(1)

    def password() -> str:
        if next(calls) == 4:  # the bus has two connections, and the pool has one
            scope.cancel()
        return "secret"

    with anyio.CancelScope() as scope:
        await PostgresLog(own_postgres.url(), password=password).start()
    assert scope.cancelled_caught
    await no_connections(own_postgres)


async def test_log_of_a_server_that_is_not_up_yet_starts_later(own_server: Server) -> None:
    own_server.kill()
    log = log_at(own_server.url())
    with pytest.raises(StoreDownError, match="check that it is running"):
        await log.start()
    with pytest.raises(StoreDownError):
        await log.last_id("x")
    append = asyncio.create_task(log.append("x", "a", timeout=60.0))
    await asyncio.sleep(0.2)
    assert not append.done()
    own_server.start()
    assert await append == await log.last_id("x")
    await log.aclose()
