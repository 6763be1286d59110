"""From a purgatory that costs nothing to one that leaves nothing behind (I13)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError
from aiopurgatory.testing import ManualClock, check_invariants

from .parts import CountingClock, FailingClock, Op, clock_tasks, turns


async def test_init_costs_no_task_and_no_thread() -> None:
    before = (len(asyncio.all_tasks()), threading.active_count())
    Purgatory("idle")
    await asyncio.sleep(0)
    assert (len(asyncio.all_tasks()), threading.active_count()) == before


async def test_async_with_raising_closes(clock: ManualClock) -> None:
    op = Op(1.0)

    async def use() -> None:
        async with Purgatory(clock=clock) as purgatory:
            purgatory.watch(op, ["key"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    assert isinstance(op.exception(), PurgatoryClosedError)
    assert clock_tasks() == []


async def test_close_answers_everybody_with_its_own_error(purgatory: Purgatory) -> None:
    ops = [purgatory.watch(Op(timeout), ["key"]) for timeout in (None, 0, 1.0)]

    async def wait(op: Op) -> BaseException:
        with pytest.raises(PurgatoryClosedError, match="test") as raised:
            await op
        return raised.value

    tasks = [asyncio.create_task(wait(op)) for op in ops]
    await asyncio.sleep(0)
    purgatory.close()
    check_invariants(purgatory)
    errors = await asyncio.gather(*tasks)
    assert len(set(map(id, errors))) == 3
    assert purgatory.statistics().failed == 3


@pytest.mark.parametrize("started_turns", [0, 1, 5])
async def test_close_leaves_no_task_and_no_handle(started_turns: int) -> None:
    clock = CountingClock()
    purgatory = Purgatory(clock=clock)
    await purgatory.start()
    await turns(started_turns)
    ops = [purgatory.watch(Op(timeout), ["key"]) for timeout in (1.0, 2.0, 3600.0)]
    await clock.manual.advance(1.5)
    purgatory.notify("key")
    purgatory.close()
    purgatory.close()
    wakeups = purgatory.statistics().wakeups
    assert clock.handles(fired=wakeups) == 0
    await turns(2)
    assert clock_tasks() == []
    await clock.manual.advance(1e6)
    assert (purgatory.statistics().wakeups, purgatory.statistics().expired) == (wakeups, 1)
    assert [op.expired for op in ops] == [True, False, False]


@pytest.mark.parametrize("steps", [0, 3])
async def test_clock_task_cancelled_counts_as_close(purgatory: Purgatory, steps: int) -> None:
    op = purgatory.watch(Op(1.0), ["key"])
    await turns(steps)
    (task,) = clock_tasks()
    task.cancel()
    with pytest.raises(PurgatoryClosedError):
        await op
    check_invariants(purgatory)
    with pytest.raises(PurgatoryClosedError):
        purgatory.watch(Op(1.0), ["key"])


async def test_clock_task_dying_counts_as_close(reported: list[dict[str, Any]]) -> None:
    clock = FailingClock()
    clock.broken = False
    async with Purgatory(clock=clock) as purgatory:
        op = purgatory.watch(Op(1.0), ["key"])
        clock.broken = True
        with pytest.raises(PurgatoryClosedError):
            await op
        check_invariants(purgatory)
    assert [type(context["exception"]) for context in reported] == [OSError]
