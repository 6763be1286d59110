"""Wait for the result of an arq job without polling Redis. python examples/servers/arq_results.py

`Job.result()` asks Redis twice a second, for each job that is waited for. Here the worker publishes the id of each job
that has ended, and a client that waits for it asks once more. As a script, this starts a Redis, a worker and some jobs.

In arq 0.28, `after_job_end` runs once the result is stored. arq needs a redis-py below 6.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from arq import Worker, create_pool
from arq.connections import RedisSettings
from arq.jobs import Job, JobStatus

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus

BUS = "aiopurgatory.arq"  # the same name for workers and clients

# The worker. In your WorkerSettings: on_startup = startup, on_shutdown = shutdown, after_job_end = after_job_end.


async def startup(ctx: dict[str, Any]) -> None:
    ctx["bus"] = RedisBus(os.environ["REDIS_URL"], name=BUS)  # without targets: it only publishes
    await ctx["bus"].start()


async def shutdown(ctx: dict[str, Any]) -> None:
    await ctx["bus"].aclose()


async def after_job_end(ctx: dict[str, Any]) -> None:
    ctx["bus"].publish(ctx["job_id"])


# The client.


async def result(purgatory: Purgatory, job: Job, *, timeout: float | None) -> Any:
    """Same as ``job.result()``. Raises: TimeoutError: it has not ended in time; the exception of the job."""

    async def is_over() -> bool:
        return await job.status() in (JobStatus.complete, JobStatus.not_found)

    # arq ends some jobs without the hook: those that expire, are aborted before their start, or whose worker has died.
    await purgatory.wait_for(is_over, [job.job_id], timeout=timeout, every=10.0)
    return await job.result()


async def add(ctx: dict[str, Any], a: int, b: int) -> tuple[int, float]:
    await asyncio.sleep(0.3)
    return a + b, time.monotonic()


async def main() -> None:
    from alone import Redis  # examples/servers/alone.py

    hooks = {"on_startup": startup, "on_shutdown": shutdown, "after_job_end": after_job_end}
    with Redis() as redis:
        os.environ["REDIS_URL"] = redis.url()
        settings = RedisSettings.from_dsn(redis.url())
        async with (
            Purgatory("results") as purgatory,
            RedisBus(redis.url(), [purgatory], name=BUS),
            await create_pool(settings) as pool,
        ):
            worker = Worker([add], redis_settings=settings, **hooks)
            working = asyncio.create_task(worker.async_run())
            for number in range(3):
                job = await pool.enqueue_job("add", number, number)
                assert job is not None
                total, ended = await result(purgatory, job, timeout=10.0)
                print(f"{number} + {number} = {total}, {(time.monotonic() - ended) * 1000:.1f} ms after its end")
            working.cancel()
            await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
