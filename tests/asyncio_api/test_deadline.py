"""Purgatory.deadline(): a moment that several waits share, by the purgatory's clock."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Outcome, Purgatory
from aiopurgatory.testing import ManualClock, check_empty

from .parts import Op


@pytest.mark.parametrize("start", [0.0, 0.1, 1e6 + 0.3, 8e6])
async def test_deadline_shared_by_waits_ends_the_last_in_time(start: float) -> None:
    clock = ManualClock(start)
    async with Purgatory(clock=clock) as purgatory:
        deadline = purgatory.deadline(0.7)
        ops = []
        for _ in range(7):
            ops.append(purgatory.watch(Op(), ["key"], timeout=deadline))
            await clock.advance(0.1)
        assert {op.outcome for op in ops} == {Outcome.EXPIRED}
        check_empty(purgatory)


async def read() -> None:
    return None


USES: dict[str, Callable[[Purgatory, Any], Awaitable[object]]] = {
    "function": lambda purgatory, deadline: purgatory.wait_for(lambda: False, ["key"], timeout=deadline),
    "async def": lambda purgatory, deadline: purgatory.wait_for(read, ["key"], timeout=deadline),
    "every": lambda purgatory, deadline: purgatory.wait_for(read, ["key"], timeout=deadline, every=30.0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_deadline_of_wait_for_counts_from_its_making(
    purgatory: Purgatory, manual_clock: ManualClock, use: Callable[[Purgatory, Any], Awaitable[object]]
) -> None:
    deadline = purgatory.deadline(10.0)
    await manual_clock.advance(4.0)
    waiting = asyncio.ensure_future(use(purgatory, deadline))
    await manual_clock.advance(5.999)
    assert not waiting.done()
    await manual_clock.advance(0.001)
    with pytest.raises(DeadlineError, match=r"^the condition was still false at its deadline$"):
        await waiting


async def test_deadline_passed_is_one_try(purgatory: Purgatory, manual_clock: ManualClock) -> None:
    deadline = purgatory.deadline(1.0)
    await manual_clock.advance(3.0)
    assert float(deadline) == -2.0
    assert await purgatory.wait_for(lambda: 7, ["key"], timeout=deadline) == 7
    with pytest.raises(DeadlineError):
        await purgatory.wait_for(lambda: 0, ["key"], timeout=deadline)


async def test_deadline_ends_follow_and_blocks(purgatory: Purgatory, manual_clock: ManualClock) -> None:
    async def newer(since: int | None) -> tuple[int, str] | None:
        return None

    async def block() -> None:
        async with purgatory.timeout(deadline):
            await asyncio.sleep(600)

    async def iterate() -> list[str]:
        return [value async for value in purgatory.follow(["key"], newer, timeout=deadline)]

    deadline = purgatory.deadline(5.0)
    await manual_clock.advance(2.0)
    tasks = asyncio.ensure_future(block()), asyncio.ensure_future(iterate())
    await manual_clock.advance(2.999)
    assert not any(task.done() for task in tasks)
    await manual_clock.advance(0.001)
    assert isinstance(tasks[0].exception(), TimeoutError)
    assert tasks[1].result() == []


async def test_deadline_of_none_is_none(purgatory: Purgatory) -> None:
    deadline = purgatory.deadline(None)
    assert float(deadline) == math.inf
    op = purgatory.watch(Op(), ["key"], timeout=deadline)
    assert op.timeout is None
    op.cancel()


async def test_time_is_that_of_the_clock(purgatory: Purgatory, manual_clock: ManualClock) -> None:
    await manual_clock.advance(7.5)
    assert purgatory.time() == 7.5
    block = purgatory.timeout(2.0)
    assert block.when() == purgatory.time() + 2.0
    before = time.monotonic()
    assert before <= Purgatory("not started").time() <= time.monotonic()
