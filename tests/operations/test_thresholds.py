"""Waits for an offset: an advance touches only the waits it satisfies."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryFullError
from aiopurgatory.operations import Thresholds
from aiopurgatory.testing import ManualClock

from .helpers import check_waiting


async def test_advance_tries_only_waits_it_satisfies(log: Thresholds) -> None:
    ops = [log.reached(offset, timeout=None) for offset in range(1, 101)]
    checks = log.purgatory.statistics().checks
    assert log.advance(3) == 3
    statistics = log.purgatory.statistics()
    assert (statistics.checks - checks, statistics.checks_without_effect) == (3, 0)
    assert [op.done() for op in ops] == [True] * 3 + [False] * 97
    check_waiting(log)


async def test_advance_ends_lowest_first_then_oldest(log: Thresholds) -> None:
    ended: list[str] = []

    async def wait(name: str, offset: int) -> None:
        await log.reached(offset, timeout=None)
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for name, offset in [("c", 9), ("a", 4), ("d", 9), ("b", 4), ("e", 10)]:
            group.create_task(wait(name, offset))
        await asyncio.sleep(0)
        assert log.advance(3) == 0
        assert log.advance(20) == 5
    assert ended == ["a", "b", "c", "d", "e"]


async def test_reached_already_does_not_park(log: Thresholds, purgatory: Purgatory) -> None:
    log.advance(7)
    assert await log.reached(7, timeout=None) == 7
    assert await log.reached(-1, timeout=None) == 7
    assert (purgatory.statistics().completed, len(log)) == (2, 0)


async def test_reached_at_deadline_raises_timeout_error(log: Thresholds, clock: ManualClock) -> None:
    log.advance(4)
    wait = log.reached(5, timeout=1.0)
    await clock.advance(0.999)
    assert not wait.done()
    await clock.advance(0.001)
    with pytest.raises(TimeoutError, match=r"'log' had not reached offset 5 after 1\.0 s"):
        await wait
    check_waiting(log)


async def test_start_counts_as_reached(purgatory: Purgatory) -> None:
    log = Thresholds(purgatory, "log", start=10)
    assert log.reached(10, timeout=None).done()
    assert not log.reached(11, timeout=None).done()


async def test_advance_before_start_keeps_the_value(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock)
    log = Thresholds(purgatory, "log")
    assert log.advance(5) == 0
    with pytest.raises(RuntimeError, match="not started"):
        log.reached(9, timeout=None)
    async with purgatory:
        assert len(log) == 0
        assert await log.reached(5, timeout=None) == 5


async def test_watch_refused_leaves_nothing(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        log = Thresholds(purgatory, "log")
        first = log.reached(5, timeout=None)
        with pytest.raises(PurgatoryFullError):
            log.reached(5, timeout=None)
        assert len(log) == 1
        check_waiting(log)
        log.advance(5)
        assert first.done()


@pytest.mark.parametrize("seed", range(3))
async def test_random_steps_agree_with_a_list(log: Thresholds, clock: ManualClock, seed: int) -> None:
    random_ = random.Random(seed)
    waiting: list[Any] = []
    for _ in range(500):
        step = random_.choices(["watch", "advance", "cancel", "time"], [60, 8, 30, 2])[0]
        if step == "watch":
            op = log.reached(log.value + random_.randint(-2, 60), timeout=random_.choice([None, 1.0, 5.0]))
            assert op.done() == (op.offset <= log.value)
            waiting += [] if op.done() else [op]
        elif step == "advance":
            value = log.value + random_.randint(-3, 10)
            assert log.advance(value) == sum(op.offset <= value for op in waiting)
        elif step == "cancel" and waiting:
            random_.choice(waiting).cancel()
        elif step == "time":
            await clock.advance(1.0)
        for op in waiting:
            if op.done() and not op.cancelled():
                op.exception()
        waiting = [op for op in waiting if not op.done()]
        assert all(op.offset > log.value for op in waiting)
        assert len(log) == len(waiting)
        check_waiting(log)
