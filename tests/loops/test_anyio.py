"""Inside the cancellation of others: anyio's scopes, asyncio's timeouts and task groups, eager tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import anyio
import pytest

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants


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


def is_empty(purgatory: Purgatory) -> bool:
    check_invariants(purgatory)
    left = purgatory.statistics()
    return (left.pending, left.watched_entries, left.keys, left.buckets) == (0, 0, 0, 0)


async def test_move_on_after_cancels_the_operation(purgatory: Purgatory) -> None:
    op = Take([])
    with anyio.move_on_after(0) as scope:
        await purgatory.watch(op, ["a", "b"])
    assert scope.cancelled_caught
    assert op.cancelled()
    assert is_empty(purgatory)


async def test_move_on_after_in_time_delivers(purgatory: Purgatory, clock: ManualClock) -> None:
    with anyio.move_on_after(60) as scope:
        op = purgatory.watch(Take([], timeout=1.0), ["a"])
        await clock.advance(1.0)
        assert await op == -1
    assert not scope.cancel_called


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
        assert is_empty(purgatory)  # from that instant
    assert all(op.cancelled() for op in ops)
    # anyio cancels again on every turn until a task ends; a task that awaits an operation ends on the first.
    assert max(task.cancelling() for task in tasks) == 1
    assert is_empty(purgatory)


@pytest.mark.parametrize("first", ["complete", "cancel"])
async def test_scope_cancelled_and_completed_keeps_grant(purgatory: Purgatory, first: str) -> None:
    pool: list[int] = []
    taken: list[int] = []

    async def take() -> None:
        taken.append(await purgatory.watch(Take(pool), ["pool"]))

    def release() -> None:
        pool.append(7)
        purgatory.check_and_complete("pool")

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await asyncio.sleep(0)
        assert purgatory.num_delayed == 1
        in_this_turn: list[Callable[[], object]] = [release, group.cancel_scope.cancel]
        for step in in_this_turn if first == "complete" else reversed(in_this_turn):
            step()
    assert pool + taken == [7]
    assert is_empty(purgatory)


@pytest.mark.parametrize(("outer", "inner", "expected"), [(0, 60, "outer"), (60, 0, "inner"), (0, 0, "outer")])
async def test_asyncio_timeout_nested_right_one_raises(
    purgatory: Purgatory, outer: float, inner: float, expected: str
) -> None:
    caught = []
    try:
        async with asyncio.timeout(outer):
            try:
                async with asyncio.timeout(inner):
                    await purgatory.watch(Take([]), ["a"])
            except TimeoutError:
                caught.append("inner")
            await asyncio.sleep(0.001)
    except TimeoutError:
        caught.append("outer")
    assert caught == [expected]
    assert is_empty(purgatory)


async def test_task_group_sibling_fails_cancels_all(purgatory: Purgatory) -> None:
    ops = [Take([]) for _ in range(3)]

    async def wait(op: Take) -> int:
        return await purgatory.watch(op, ["a", "b"])

    async def wait_and_fail() -> None:
        async with asyncio.TaskGroup() as group:
            for op in ops:
                group.create_task(wait(op))
            await asyncio.sleep(0)
            assert purgatory.num_delayed == len(ops)
            raise ValueError("sibling")

    with pytest.raises(ExceptionGroup) as caught:
        await wait_and_fail()
    assert [str(exc) for exc in caught.value.exceptions] == ["sibling"]
    assert all(op.cancelled() for op in ops)
    assert is_empty(purgatory)


if sys.version_info >= (3, 12):

    @pytest.mark.asyncio(loop_factories=["asyncio"])
    async def test_eager_tasks_all_endings_are_delivered(clock: ManualClock) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        pool = [1]

        async def take(timeout: float) -> int:
            return await purgatory.watch(Take(pool, timeout), ["pool"])

        async with Purgatory(clock=clock) as purgatory:  # its clock task is eager, too
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
            assert is_empty(purgatory)
