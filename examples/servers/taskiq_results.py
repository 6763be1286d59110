"""Wait for the result of a taskiq task without polling its backend. python examples/servers/taskiq_results.py

`task.wait_result()` asks the backend five times a second, for each task that is waited for. Here the worker publishes
the id of each task once its result is stored, and a client that waits for it asks once more. As a script, this starts a
Redis, a worker and some tasks.

With taskiq 0.13 and taskiq-redis 1.2. Give its ListQueueBroker ``socket_timeout=None``: redis-py 8 gives up a blocking
read after 5 s, and the task that Redis has just handed out is lost.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from taskiq import AsyncTaskiqTask, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from aiopurgatory import Purgatory
from aiopurgatory.bus import Bus
from aiopurgatory.bus.redis import RedisBus

BUS = "aiopurgatory.taskiq"  # the same name for workers and clients


class Announce(TaskiqMiddleware):
    """Goes to the broker of the workers. Its bus starts and closes with that."""

    def __init__(self, bus: Bus) -> None:
        super().__init__()
        self._bus = bus

    async def startup(self) -> None:
        await self._bus.start()

    async def shutdown(self) -> None:
        await self._bus.aclose()

    def post_save(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        self._bus.publish(message.task_id)


async def result(purgatory: Purgatory, task: AsyncTaskiqTask[Any], *, timeout: float | None) -> TaskiqResult[Any]:
    """Same as ``task.wait_result()``. Raises: TimeoutError: it has not ended in time."""
    # A worker may die between the result and its publish.
    await purgatory.wait_for(task.is_ready, [task.task_id], timeout=timeout, every=10.0)
    return await task.get_result()


async def main() -> None:
    from alone import Redis  # examples/servers/alone.py

    with Redis() as redis:
        async with Purgatory("results") as purgatory, RedisBus(redis.url(), [purgatory], name=BUS):
            backend: Any = RedisAsyncResultBackend(redis.url(), result_ex_time=600)
            broker = ListQueueBroker(redis.url(), socket_timeout=None).with_result_backend(backend)
            broker.add_middlewares(Announce(RedisBus(redis.url(), name=BUS)))  # without targets: it only publishes

            @broker.task
            async def add(a: int, b: int) -> tuple[int, float]:
                await asyncio.sleep(0.3)
                return a + b, time.monotonic()

            await broker.startup()
            worker = asyncio.create_task(run_receiver_task(broker))
            for number in range(3):
                task = await add.kiq(number, number)
                total, ended = (await result(purgatory, task, timeout=10.0)).return_value
                print(f"{number} + {number} = {total}, {(time.monotonic() - ended) * 1000:.1f} ms after its end")
            worker.cancel()
            await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
