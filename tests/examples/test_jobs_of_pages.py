"""The programs of docs/postgres-jobs.md and docs/from-redis.md, on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

asyncpg = pytest.importorskip("asyncpg")
redis_asyncio = pytest.importorskip("redis.asyncio")

from private_servers import Postgres, Redis  # noqa: E402
from web.proxies.recipes import blocks  # type: ignore[import-not-found] # noqa: E402

from aiopurgatory import PurgatoryClosedError  # noqa: E402
from aiopurgatory.streams.redis import RedisLog  # noqa: E402
from aiopurgatory.testing import until_pending  # noqa: E402

from .helpers import block, installed, until  # noqa: E402


def program(page: str, *titles: str) -> dict[str, Any]:
    """The names that the programs *titles* of *page* define."""
    names = dict[str, Any]()
    for title in titles:
        exec(block(page, title), names)
    return names


async def until_read(purgatory: Any, count: int) -> None:
    """The first read of each wait, and one more, have found nothing."""
    await until_pending(purgatory, count)
    before = purgatory.statistics().reads_in_vain
    purgatory.check_and_complete("jobs")
    await until(lambda: purgatory.statistics().reads_in_vain == before + count)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with installed(Postgres)() as server:
        yield server


@pytest.fixture
def redis() -> Iterator[Redis]:
    with installed(Redis)() as server:
        yield server


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[Any]:
    url = redis.url(user="default:default-secret")
    async with redis_asyncio.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def jobs(postgres: Postgres) -> AsyncIterator[Any]:
    (table,) = blocks("postgres-jobs.md", "sql")
    names = program("postgres-jobs.md", "jobs.py")
    async with asyncpg.create_pool(postgres.url(), min_size=1, max_size=4) as pool:
        await pool.execute("DROP TABLE IF EXISTS jobs")
        await pool.execute(table)
        await pool.execute(names["TRIGGER"])
        made = names["Jobs"](pool, postgres.url())  # its leases take 30 s
        async with made.opened():
            yield made


async def add(jobs: Any, task: str) -> None:
    await jobs.pool.execute("INSERT INTO jobs (task) VALUES ($1)", task)


async def test_postgres_job_wakes_a_worker_when_it_commits(jobs: Any) -> None:
    worker = asyncio.create_task(jobs.claim(timeout=25.0))
    await until_read(jobs.purgatory, 1)
    async with jobs.pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("INSERT INTO jobs (task) VALUES ('sweep')")
            await asyncio.sleep(0.1)
            assert not worker.done()
        job = await asyncio.wait_for(worker, 15.0)
    assert job["task"] == "sweep"
    assert await jobs.done(job)
    assert await jobs.claim(timeout=0.0) is None
    assert jobs.purgatory.statistics().missed_triggers == 0


async def test_postgres_lease_that_runs_out_gives_the_job_to_another(jobs: Any) -> None:
    await add(jobs, "sweep")
    jobs.lease = 1.0
    lost = await jobs.claim(timeout=0.0)
    again = await jobs.claim(timeout=15.0)
    assert again["id"] == lost["id"]
    assert not await jobs.done(lost)
    assert await jobs.extend(lost) is None
    until = await jobs.extend(again)
    assert await jobs.done({"id": again["id"], "leased_until": until})


async def test_postgres_job_of_a_client_that_leaves_is_given_back(jobs: Any) -> None:
    for milliseconds in range(12):
        ann, bob = (asyncio.create_task(jobs.claim(timeout=25.0)) for _ in "ab")
        await until_read(jobs.purgatory, 2)
        adding = asyncio.create_task(add(jobs, "sweep"))
        await asyncio.sleep(milliseconds / 2000)
        ann.cancel()
        await adding
        await asyncio.wait([ann])
        # Sooner than the lease ends.
        assert await jobs.done(await asyncio.wait_for(bob if ann.cancelled() else ann, 15.0))
        bob.cancel()
        await until(lambda: not jobs.tasks)


async def test_postgres_claim_under_way_survives_an_outage(jobs: Any, postgres: Postgres) -> None:
    blocker = await asyncpg.connect(postgres.url())
    await blocker.execute("BEGIN; LOCK TABLE jobs")
    worker = asyncio.create_task(jobs.claim(timeout=30.0))
    await until_pending(jobs.purgatory, 1)
    await asyncio.to_thread(postgres.kill)
    await asyncio.to_thread(postgres.start)
    await add(jobs, "sweep")
    assert await jobs.done(await asyncio.wait_for(worker, 20.0))


async def test_postgres_job_of_a_shutdown_goes_to_another_process(jobs: Any, postgres: Postgres) -> None:
    there = program("postgres-jobs.md", "jobs.py")["Jobs"](jobs.pool, postgres.url())  # its leases take 30 s
    async with asyncpg.create_pool(postgres.url(), min_size=2, max_size=2) as pool, there.opened():
        here = type(there)(pool, postgres.url())
        admin = await jobs.pool.acquire()
        async with here.opened():
            wait = asyncio.create_task(here.claim(timeout=25.0))
            waiting = asyncio.create_task(there.claim(timeout=25.0))
            await until_read(here.purgatory, 1)
            await until_read(there.purgatory, 1)
            await admin.execute("BEGIN; LOCK TABLE jobs; ALTER TABLE jobs DISABLE TRIGGER ALL")
            here.purgatory.check_and_complete("jobs", limit=1)
            await asyncio.sleep(0.1)  # the claim is on its way
            here.purgatory.close()
            with pytest.raises(PurgatoryClosedError):
                await wait
            await admin.execute("INSERT INTO jobs (task) VALUES ('sweep')")
            await admin.execute("ALTER TABLE jobs ENABLE TRIGGER ALL; COMMIT")
        await jobs.pool.release(admin)
        assert await there.done(await asyncio.wait_for(waiting, 15.0))


async def test_redis_jobs_of_page_come_once_and_none_is_lost(redis: Redis, client: Any) -> None:
    names = program("from-redis.md", "after.py")
    async with names["opened"](redis.url()) as bus:
        purgatory = names["purgatory"]
        waits = [asyncio.create_task(names["next_job"](client, bus)) for _ in range(8)]
        await until_read(purgatory, 8)
        for number in range(4):
            await names["add"](client, bus, f"job {number}")
        for wait in waits[:4]:
            wait.cancel()
        await until(lambda: sum(wait.done() and not wait.cancelled() for wait in waits) >= 4)
        found = [wait.result() for wait in waits if wait.done() and not wait.cancelled()]
        assert sorted(found) == [f"job {number}" for number in range(4)]
        assert await client.llen("jobs") == 0
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await until(lambda: not names["tasks"])


async def test_redis_job_of_a_shutdown_goes_to_another_process(redis: Redis, client: Any) -> None:
    here, there = (program("from-redis.md", "after.py") for _ in "ab")
    async with there["opened"](redis.url()) as other:
        async with here["opened"](redis.url()) as bus:
            wait = asyncio.create_task(here["next_job"](client, bus))
            waiting = asyncio.create_task(there["next_job"](client, other))
            await until_read(here["purgatory"], 1)
            await until_read(there["purgatory"], 1)
            await client.rpush("jobs", "sweep")
            await client.client_pause(60_000, all=False)  # of writes
            here["purgatory"].check_and_complete("jobs", limit=1)
            await asyncio.sleep(0.1)  # LPOP is on its way
            here["purgatory"].close()
            with pytest.raises(PurgatoryClosedError):
                await wait
            await client.client_unpause()
        assert await asyncio.wait_for(waiting, 15.0) == "sweep"


async def test_redis_before_of_page_works(client: Any) -> None:
    names = program("from-redis.md", "before.py", "listen_before.py")
    waiting = asyncio.create_task(names["next_job"](client))
    await names["add"](client, "sweep")
    assert await asyncio.wait_for(waiting, 5.0) == "sweep"
    received: list[str] = []
    listening = asyncio.create_task(names["listen"](client, received))
    async with asyncio.timeout(5.0):
        while not received:
            await client.publish("news", "hello")
            await asyncio.sleep(0.01)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_redis_listener_of_page_resumes_after_its_last_event(redis: Redis) -> None:
    names = program("from-redis.md", "listen_after.py")
    async with RedisLog(redis.url()) as log:
        await names["tell"](log, "one")
        ids = []
        async with asyncio.timeout(5.0), log.follow("news") as events:
            ids.append((await anext(events)).id)
        await names["tell"](log, "two")  # while nobody listens
        received: list[str] = []
        listening = asyncio.create_task(names["listen"](log, received, ids[0]))
        await until(lambda: received)
        assert received == ["two"]
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
