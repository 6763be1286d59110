"""Cancelling the awaiting task leaves nothing behind, loses no grant, and makes no grant twice."""

from __future__ import annotations

import asyncio

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


async def test_expiry_that_raises_gives_nothing_back(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(60.0, on_expiration=raising(TimeoutError())), ["key"])
    task = await awaited(op)
    purgatory.expire_all()
    task.cancel()
    assert await task == "CancelledError"
    assert (op.ran, purgatory.statistics().undelivered) == (["on_complete", "on_expiration"], 0)


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


async def test_on_undelivered_after_result_read_not_called(purgatory: Purgatory) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    task = asyncio.create_task(wait(op))
    await turns(1)
    op.force_complete()
    assert op.result() == "result"
    task.cancel()
    await turns(2)
    assert "on_undelivered" not in op.ran
