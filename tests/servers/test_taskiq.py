"""taskiq on our wait: the same results as from its own wait, at once, under any fault of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import taskiq_http
import taskiq_results
from private_proxy import Proxy
from private_servers import Redis
from taskiq import AsyncTaskiqDecoratedTask, AsyncTaskiqTask
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus

pytestmark = pytest.mark.servers

Started = tuple[AsyncTaskiqDecoratedTask[[int], int], RedisAsyncResultBackend[Any], Purgatory]


#: The work that is not to end yet.
held: set[int] = set()


async def work(number: int) -> int:
    await asyncio.sleep(0.1)
    while number in held:  # noqa: ASYNC110 the loops of several tests come and go
        await asyncio.sleep(0.01)
    if number < 0:
        raise ValueError("no")
    return number


@asynccontextmanager
async def served(redis: Redis, bus_port: int | None = None) -> AsyncIterator[Started]:
    url = redis.url(bus_port)
    options: dict[str, Any] = {"name": "aiopurgatory.taskiq", "heartbeat": 0.3, "timeout": 3.0}
    backend: Any = RedisAsyncResultBackend(redis.url(), result_ex_time=600)
    async with (
        Purgatory("results") as purgatory,
        RedisBus(url, [purgatory], **options),
        RedisBus(url, **options) as tells,
    ):
        broker = ListQueueBroker(redis.url(), socket_timeout=None).with_result_backend(backend)
        broker.add_middlewares(taskiq_results.Announce(tells))
        task = broker.register_task(work, task_name="work")
        await broker.startup()
        working = asyncio.create_task(run_receiver_task(broker, max_async_tasks=1_000))
        yield task, backend, purgatory
        working.cancel()
        await asyncio.wait([working])
        await broker.shutdown()


async def test_results_and_errors_are_those_of_taskiq(redis: Redis) -> None:
    async with served(redis) as (task, backend, purgatory):
        queued = await task.kiq(7)
        assert (await taskiq_results.result(purgatory, queued, timeout=60.0)).return_value == 7
        assert (await taskiq_results.result(purgatory, queued, timeout=0.0)).return_value == 7
        failed = await taskiq_results.result(purgatory, await task.kiq(-1), timeout=60.0)
        with pytest.raises(ValueError, match="no"):
            failed.raise_for_error()
        with pytest.raises(TimeoutError):
            await taskiq_results.result(purgatory, AsyncTaskiqTask("unknown", backend), timeout=0.2)
        assert purgatory.num_delayed == 0


async def test_results_are_served_over_http(redis: Redis) -> None:
    app = taskiq_http.service(redis.url())
    async with (
        served(redis) as (task, _, _),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        held.add(7)
        number = (await task.kiq(7)).task_id
        assert (await client.get(f"/tasks/{number}")).json() == {"state": "running"}
        assert (await client.get(f"/tasks/{number}?wait=0")).status_code == 204
        held.clear()
        assert (await client.get(f"/tasks/{number}?wait=30")).json() == {"state": "done", "result": 7}
        number = (await task.kiq(-1)).task_id
        failed = {"state": "failed", "result": "ValueError('no')"}
        assert (await client.get(f"/tasks/{number}?wait=30")).json() == failed


@pytest.mark.parametrize("fault", ["none", "cut", "swallow", "deafen"])
async def test_every_wait_ends_whatever_happens_to_the_bus(redis: Redis, fault: str) -> None:
    async with Proxy(redis.port) as proxy, served(redis, proxy.port) as (task, _, purgatory):
        queued = [await task.kiq(number) for number in range(200)]
        waits = [asyncio.create_task(taskiq_results.result(purgatory, each, timeout=300.0)) for each in queued]
        await asyncio.sleep(0.05)
        if fault != "none":
            getattr(proxy, fault)()
        async with asyncio.timeout(120):  # and not at their deadlines
            assert [result.return_value for result in await asyncio.gather(*waits)] == list(range(200))


async def test_the_example_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await taskiq_results.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["0 + 0 = 0", "1 + 1 = 2", "2 + 2 = 4"]
