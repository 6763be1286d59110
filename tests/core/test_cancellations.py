"""Cancelling the awaiting task leaves nothing behind, loses no grant, and makes no grant twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import ENDINGS, Boom, Op, awaited, is_empty, raising, taken, turns


async def wait(op: Op) -> str:
    return await op


async def test_cancel_task_cancels_op_in_that_instant(purgatory: Purgatory, clock: ManualClock) -> None:
    op = purgatory.watch(Op(1.0, ready=False), ["a", "b"])
    task = asyncio.create_task(wait(op))
    await turns(1)
    assert task.cancel("gone") is True
    check_invariants(purgatory)
    op.ready = True
    assert (op.cancelled(), op.force_complete(), op.fail(Boom()), op.cancel()) == (True, False, False, False)
    assert (purgatory.check_and_complete("a"), purgatory.expire_all()) == (0, 0)
    assert is_empty(purgatory)
    with pytest.raises(asyncio.CancelledError, match="gone"):
        await task
    await clock.advance(10.0)
    assert (op.ran, op.tries) == (["on_cancel"], 2)


@pytest.mark.parametrize("name", ["complete", "expire"])
@pytest.mark.parametrize("stays", ["-", "--", "---", "+--", "-+-", "--+"])
async def test_end_then_tasks_leave_gives_back_if_none_stays(purgatory: Purgatory, name: str, stays: str) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    tasks = [await awaited(op) for _ in stays]
    ENDINGS[name].end(purgatory, op)
    for task, stay in zip(tasks, stays, strict=True):
        task.cancel() if stay == "-" else None
    assert await asyncio.gather(*tasks) == ["result" if stay == "+" else "CancelledError" for stay in stays]
    assert op.ran == ENDINGS[name].ran + ["on_undelivered"] * ("+" not in stays)
    check_invariants(purgatory)


@pytest.mark.parametrize("is_pending", [True, False])
async def test_coroutine_closed_gives_back(purgatory: Purgatory, is_pending: bool) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    coroutine = wait(op)
    coroutine.send(None)
    for step in (coroutine.close, op.force_complete) if is_pending else (op.force_complete, coroutine.close):
        assert (op.outcome, purgatory.num_delayed) == (None, 1) or not is_pending  # as with a Future: not cancelled
        step()
    assert op.ran == ["on_complete", "on_undelivered"]


async def test_coroutine_closed_another_awaiter_gets_it(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0), ["key"])
    coroutine = wait(op)
    coroutine.send(None)
    task = asyncio.create_task(wait(op))
    await turns(1)
    coroutine.close()
    op.force_complete()
    assert (await task, op.ran) == ("result", ["on_complete"])


async def test_on_undelivered_raising_is_reported(purgatory: Purgatory, reports: list[BaseException]) -> None:
    boom = Boom()
    op = purgatory.watch(Op(60.0, on_undelivered=raising(boom)), ["key"])
    task = await awaited(op)
    op.force_complete()
    task.cancel()
    assert await task == "CancelledError"
    assert (taken(reports), op.outcome, op.result()) == ([boom], Outcome.COMPLETED, "result")


class Desk:
    """Hands out operations that end after a few checks, and notes the results that arrive."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.opened: list[Op] = []
        self.taken: list[Op] = []

    async def ask(self) -> None:
        op = Op(60.0, try_complete=lambda op: setattr(op, "ready", op.tries > 4))
        self.opened.append(op)
        await self.purgatory.watch(op, ["a", "b"])
        self.taken.append(op)

    async def plain(self) -> None:
        while True:
            await self.ask()

    async def nested(self) -> None:
        while True:
            async with asyncio.timeout(60.0), asyncio.TaskGroup() as group:
                group.create_task(self.ask())
                group.create_task(self.ask())

    async def predicates(self) -> None:
        while True:
            await self.ask()
            with suppress(TimeoutError):
                await self.purgatory.wait_for(lambda: len(self.opened) % 2, ["a"], timeout=60.0)


def expire_all(purgatory: Purgatory, key: str) -> None:
    purgatory.expire_all()


@pytest.mark.parametrize("use", [Desk.plain, Desk.nested, Desk.predicates])
@pytest.mark.parametrize("event", [Purgatory.check_and_complete, Purgatory.notify, expire_all])
@pytest.mark.parametrize("k", range(21))
async def test_cancel_at_kth_turn_leaves_nothing(
    purgatory: Purgatory,
    clock: ManualClock,
    k: int,
    event: Callable[[Purgatory, str], object],
    use: Callable[[Desk], Coroutine[Any, Any, None]],
) -> None:
    desk = Desk(purgatory)
    task = asyncio.create_task(use(desk))
    for _ in range(k):
        event(purgatory, "a")
        await turns(1)
    task.cancel()
    await asyncio.wait([task])
    assert is_empty(purgatory)
    for op in desk.opened:  # each grant is taken or given back
        ends = [desk.taken.count(op), op.ran.count("on_undelivered"), op.ran.count("on_cancel")]
        assert sorted(ends) == [0, 0, 1]
    assert len(desk.opened) > 0 or k < 2
    asked = [(op.tries, *op.ran) for op in desk.opened]
    await clock.advance(100.0)
    assert [(op.tries, *op.ran) for op in desk.opened] == asked


async def test_on_undelivered_after_result_read_not_called(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    task = asyncio.create_task(wait(op))
    await turns(1)
    op.force_complete()
    assert op.result() == "result"
    task.cancel()
    await turns(2)
    assert "on_undelivered" not in op.ran
