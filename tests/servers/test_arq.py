"""arq on our wait: the same results as from its own wait, at once, under any fault of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import arq_http
import arq_results
import httpx
import pytest
from arq import ArqRedis, Worker, create_pool
from arq.connections import RedisSettings
from arq.jobs import Job, ResultNotFound
from arq.worker import JobExecutionFailed
from private_proxy import Proxy
from private_servers import Redis

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus

pytestmark = [
    pytest.mark.servers,
    # arq closes its connections as redis-py 4 did. A worker that is cancelled in a pipeline does not close that.
    pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed client session:ResourceWarning"),
]


#: The work that is not to end yet.
held: set[int] = set()


async def work(ctx: dict[str, Any], number: int) -> int:
    await asyncio.sleep(0.1)
    while number in held:  # noqa: ASYNC110 the loops of several tests come and go
        await asyncio.sleep(0.01)
    return number


async def fail(ctx: dict[str, Any]) -> None:
    raise ValueError("no")


@asynccontextmanager
async def served(redis: Redis, bus_port: int | None = None) -> AsyncIterator[tuple[ArqRedis, Purgatory]]:
    settings = RedisSettings.from_dsn(redis.url())
    url = redis.url(bus_port)
    options: dict[str, Any] = {"name": "aiopurgatory.arq", "heartbeat": 0.3, "timeout": 3.0}
    async with (
        Purgatory("results") as purgatory,
        RedisBus(url, [purgatory], **options),
        RedisBus(url, **options) as tells,
        await create_pool(settings) as pool,
    ):
        worker = Worker(
            [work, fail],
            redis_settings=settings,
            ctx={"bus": tells},
            after_job_end=arq_results.after_job_end,
            max_jobs=1_000,
            poll_delay=0.05,
            max_tries=1,
            handle_signals=False,
        )
        working = asyncio.create_task(worker.async_run())
        yield pool, purgatory
        working.cancel()
        await asyncio.wait([working])
        await worker.close()


async def queued(pool: ArqRedis, name: str, *arguments: int) -> Job:
    job = await pool.enqueue_job(name, *arguments)
    assert job is not None
    return job


async def test_results_and_errors_are_those_of_arq(redis: Redis) -> None:
    async with served(redis) as (pool, purgatory):
        job = await queued(pool, "work", 7)
        assert await arq_results.result(purgatory, job, timeout=60.0) == 7
        assert await arq_results.result(purgatory, job, timeout=0.0) == 7
        with pytest.raises(ValueError, match="no"):
            await arq_results.result(purgatory, await queued(pool, "fail"), timeout=60.0)
        with pytest.raises(ResultNotFound):
            await arq_results.result(purgatory, Job("unknown", pool), timeout=60.0)
        held.add(1)
        with pytest.raises(TimeoutError):
            await arq_results.result(purgatory, await queued(pool, "work", 1), timeout=0.01)
        held.clear()
        assert purgatory.num_delayed == 0


async def test_job_that_ends_without_the_hook_is_found(redis: Redis) -> None:
    # So does one that expires, is aborted before its start, or whose worker has died max_tries times.
    async with served(redis) as (pool, purgatory):
        job = await pool.enqueue_job("renamed", _defer_by=0.5)
        assert job is not None
        async with asyncio.timeout(30.0):  # and not at its deadline
            with pytest.raises(JobExecutionFailed, match="not found"):
                await arq_results.result(purgatory, job, timeout=300.0)


async def test_results_are_served_over_http(redis: Redis) -> None:
    app = arq_http.service(redis.url())
    async with (
        served(redis) as (pool, _),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        held.add(7)
        number = (await queued(pool, "work", 7)).job_id
        assert (await client.get(f"/jobs/{number}")).json() == {"state": "running"}
        assert (await client.get(f"/jobs/{number}?wait=0")).status_code == 204
        held.clear()
        assert (await client.get(f"/jobs/{number}?wait=30")).json() == {"state": "done", "result": 7}
        number = (await queued(pool, "fail")).job_id
        failed = {"state": "failed", "result": "ValueError('no')"}
        assert (await client.get(f"/jobs/{number}?wait=30")).json() == failed
        assert (await client.get("/jobs/unknown?wait=5")).status_code == 404


@pytest.mark.parametrize("fault", ["none", "cut", "swallow", "deafen"])
async def test_every_wait_ends_whatever_happens_to_the_bus(redis: Redis, fault: str) -> None:
    async with Proxy(redis.port) as proxy, served(redis, proxy.port) as (pool, purgatory):
        jobs = [await queued(pool, "work", number) for number in range(200)]
        waits = [asyncio.create_task(arq_results.result(purgatory, job, timeout=300.0)) for job in jobs]
        await asyncio.sleep(0.05)
        if fault != "none":
            getattr(proxy, fault)()
        async with asyncio.timeout(120):  # and not at their deadlines
            assert await asyncio.gather(*waits) == list(range(200))


async def test_the_example_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await arq_results.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["0 + 0 = 0", "1 + 1 = 2", "2 + 2 = 4"]
