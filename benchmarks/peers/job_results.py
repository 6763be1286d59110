"""python job_results.py PACKAGE WAIT URL: wait for the results of 1,000 jobs at once; print the cost as JSON.

PACKAGE is arq or taskiq. WAIT is theirs, which polls, or ours, from examples/servers. Another process is the worker
(``python job_results.py PACKAGE worker URL``): each job sleeps for 1 to 3 s, and returns when it ended.

Do our own mistakes decide the result? Their waits are their own code, at their default intervals of polling. A longer
interval takes less CPU, and is later.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import quantiles
from typing import Any

import redis

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus

JOBS = 1_000
CHANNEL = "aiopurgatory.results"

Start = Callable[[], Awaitable[Callable[[], Awaitable[float]]]]


async def job(*_: Any) -> float:
    await asyncio.sleep(random.uniform(1.0, 3.0))
    return time.monotonic()


async def arq_worker(url: str) -> None:
    from arq import Worker
    from arq.connections import RedisSettings
    from arq_results import after_job_end

    async with RedisBus(url, name=CHANNEL) as bus:
        settings = RedisSettings.from_dsn(url)
        await Worker(
            [job], redis_settings=settings, max_jobs=JOBS, ctx={"bus": bus}, after_job_end=after_job_end
        ).async_run()


@asynccontextmanager
async def arq_client(url: str, purgatory: Purgatory | None) -> Any:
    from arq import create_pool
    from arq.connections import RedisSettings
    from arq_results import result

    async with await create_pool(RedisSettings.from_dsn(url)) as pool:

        async def start() -> Callable[[], Awaitable[float]]:
            queued = await pool.enqueue_job("job")
            assert queued is not None
            if purgatory is None:
                return queued.result
            return lambda: result(purgatory, queued, timeout=60.0)

        yield start


def taskiq_broker(url: str) -> Any:
    from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

    # Without a limit: 1,000 that wait for a connection of the pool take longer than its 20 s on a busy machine.
    backend: Any = RedisAsyncResultBackend(url, result_ex_time=600, timeout=None, socket_timeout=None)
    return ListQueueBroker(url, socket_timeout=None).with_result_backend(backend)


async def taskiq_worker(url: str) -> None:
    from taskiq.api import run_receiver_task
    from taskiq_results import Announce

    async with RedisBus(url, name=CHANNEL) as bus:
        broker = taskiq_broker(url)
        broker.add_middlewares(Announce(bus))
        broker.register_task(job, task_name="job")
        await run_receiver_task(broker, max_async_tasks=JOBS, run_startup=True)


@asynccontextmanager
async def taskiq_client(url: str, purgatory: Purgatory | None) -> Any:
    from taskiq_results import result

    broker = taskiq_broker(url)
    task = broker.register_task(job, task_name="job")
    await broker.startup()

    async def start() -> Callable[[], Awaitable[float]]:
        queued = await task.kiq()

        async def ours() -> float:
            assert purgatory is not None
            return float((await result(purgatory, queued, timeout=60.0)).return_value)

        async def theirs() -> float:
            return float((await queued.wait_result(timeout=60.0)).return_value)

        return theirs if purgatory is None else ours

    yield start
    await broker.shutdown()


async def wait_for_all(start: Start, url: str) -> dict[str, float]:
    admin: Any = redis.Redis.from_url(url)
    await (await start())()  # the worker is there
    commands, cpu = admin.info()["total_commands_processed"], cpu_time()

    async def wait_for_one(wait: Callable[[], Awaitable[float]]) -> float:
        ended = await wait()
        return (time.monotonic() - ended) * 1000

    late = await asyncio.gather(*[wait_for_one(await start()) for _ in range(JOBS)])
    percentiles = quantiles(late, n=100)
    return {
        "p50_ms": percentiles[49],
        "p99_ms": percentiles[98],
        "client_cpu_s": cpu_time() - cpu,
        "commands_per_wait": (admin.info()["total_commands_processed"] - commands) / JOBS,
    }


def cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def ask(package: str, wait: str, url: str) -> dict[str, float]:
    client = {"arq": arq_client, "taskiq": taskiq_client}[package]
    if wait == "theirs":
        async with client(url, None) as start:
            return await wait_for_all(start, url)
    async with (
        Purgatory("results") as purgatory,
        RedisBus(url, [purgatory], name=CHANNEL),
        client(url, purgatory) as start,
    ):
        return await wait_for_all(start, url)


def main(package: str, wait: str, url: str) -> None:
    if wait == "worker":
        asyncio.run({"arq": arq_worker, "taskiq": taskiq_worker}[package](url))
        return
    worker = subprocess.Popen([sys.executable, __file__, package, "worker", url], stderr=subprocess.DEVNULL)
    try:
        print(json.dumps(asyncio.run(ask(package, wait, url))))
    finally:
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
