"""Inside the cancellation of others: anyio's scopes; eager tasks."""

from __future__ import annotations

import asyncio
import sys

import anyio
import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock, check_empty


class Take(DelayedOperation[int]):
    """Takes an item out of a pool, and puts it back if nobody gets it."""

    def __init__(self, pool: list[int], timeout: float = 60.0) -> None:
        super().__init__(timeout)
        self.pool = pool

    def try_complete(self) -> bool:
        return bool(self.pool) and self.force_complete()

    def on_complete(self) -> int:
        return -1 if self.expired else self.pool.pop()

    def on_undelivered(self, result: int) -> None:
        self.pool.append(result)


async def test_move_on_after_cancels_the_operation(purgatory: Purgatory) -> None:
    op = Take([])
    with anyio.move_on_after(0) as scope:
        await purgatory.watch(op, ["a", "b"])
    assert scope.cancelled_caught
    assert op.cancelled()
    check_empty(purgatory)


async def test_task_group_cancelled_scope_leaves_nothing(purgatory: Purgatory) -> None:
    ops = [Take([]) for _ in range(2000)]
    tasks: list[asyncio.Task[None]] = []

    async def wait(op: Take) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        await purgatory.watch(op, ["hot", id(op)])

    async with anyio.create_task_group() as group:
        for op in ops:
            group.start_soon(wait, op)
        await asyncio.sleep(0)
        assert purgatory.num_delayed == len(ops)
        group.cancel_scope.cancel()
        check_empty(purgatory)  # from that instant
    assert all(op.cancelled() for op in ops)
    # anyio cancels again on every turn until a task ends; a task that awaits an operation ends on the first.
    assert max(task.cancelling() for task in tasks) == 1
    check_empty(purgatory)


if sys.version_info >= (3, 12):

    @pytest.mark.asyncio(loop_factories=["asyncio"])
    async def test_eager_tasks_all_endings_are_delivered(clock: ManualClock) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        pool = [1]

        async def take(timeout: float) -> int:
            return await purgatory.watch(Take(pool, timeout), ["pool"])

        async with Purgatory(clock=clock) as purgatory:  # its clock task is also eager
            at_once, by_check, by_time, cancelled = (asyncio.create_task(take(n)) for n in (60.0, 60.0, 5.0, 60.0))
            assert at_once.done()
            assert purgatory.num_delayed == 3  # parked before create_task() returned
            pool.append(2)
            assert purgatory.check_and_complete("pool") == 1
            await clock.advance(5.0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert [await at_once, await by_check, await by_time] == [1, 2, -1]
            check_empty(purgatory)
