"""A request for several partitions: an answer for each, by any end of its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.operations import NotEnoughReplicasError, Replicas, Thresholds, produce
from aiopurgatory.testing import ManualClock

from .helpers import Answers, LeadershipError, advance, begun, partition


async def to_both(purgatory: Purgatory) -> tuple[Replicas[Any], Replicas[Any], Answers]:
    """Two partitions, and a produce() that waits for offset 1 of both."""
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    needs = {"orders": (orders, 1), "payments": (payments, 1)}
    return orders, payments, await begun(produce(purgatory, needs, timeout=30.0))


async def test_produce_waits_for_every_partition(purgatory: Purgatory) -> None:
    orders, log = partition(purgatory), Thresholds(purgatory, "log")
    task = await begun(produce(purgatory, {"orders": (orders, 3), "log": (log, 5)}, timeout=30.0))
    assert (advance(orders, 2), advance(orders, 3), log.advance(4)) == (0, 0, 0)
    assert (purgatory.num_delayed, len(log)) == (1, 1)
    assert (log.advance(5), len(log)) == (1, 0)
    assert await task == {"orders": None, "log": None}
    assert purgatory.watched_entries == 0


async def test_produce_partition_that_fails_once_acked_stays_acked(purgatory: Purgatory) -> None:
    orders, payments, task = await to_both(purgatory)
    advance(orders, 1)
    orders.fail(LeadershipError())
    advance(payments, 1)
    assert await task == {"orders": None, "payments": None}


async def test_produce_at_deadline_tells_of_each_partition(purgatory: Purgatory, clock: ManualClock) -> None:
    parts = {key: partition(purgatory, key) for key in ("a", "b", "c", "d")}
    task = await begun(produce(purgatory, {key: (part, 7) for key, part in parts.items()}, timeout=1.0))
    advance(parts["b"], 7)
    parts["d"].fail(lost := LeadershipError())
    await clock.advance(0.999)
    assert not task.done()
    await clock.advance(0.001)
    answers = await task
    assert purgatory.statistics().expired == 1
    assert list(answers) == ["a", "b", "c", "d"]
    assert (answers["b"], answers["d"]) == (None, lost)
    for key in ("a", "c"):
        assert isinstance(answers[key], TimeoutError)
        assert str(answers[key]) == f"'{key}' was not acked up to 7 after 1.0 s"
    assert purgatory.num_delayed == 0


@pytest.mark.parametrize("timeout", [0, -0.001])
async def test_produce_without_time_tries_once(full: Purgatory, timeout: float) -> None:
    orders, payments = partition(full, "orders"), partition(full, "payments")
    advance(orders, 1)
    answers = await produce(full, {"orders": (orders, 1), "payments": (payments, 1)}, timeout=timeout)
    assert (answers["orders"], type(answers["payments"])) == (None, DeadlineError)


async def test_produce_leadership_lost_ends_that_partition(purgatory: Purgatory) -> None:
    orders, payments, task = await to_both(purgatory)
    assert orders.fail(lost := LeadershipError("moved")) == 0
    assert not task.done()
    assert advance(payments, 1) == 1
    assert await task == {"orders": lost, "payments": None}


async def test_produce_too_few_replicas_ends_that_partition(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=1, min_in_sync=2)
    task = await begun(produce(purgatory, {"orders": (orders, 1)}, timeout=30.0))
    orders.drop(0)
    assert isinstance((await task)["orders"], NotEnoughReplicasError)


async def test_produce_single_replica_never_parks(full: Purgatory) -> None:
    orders = partition(full, followers=0)
    orders.update("leader", 1)
    assert await produce(full, {"orders": (orders, 1)}, timeout=30.0) == {"orders": None}


async def test_produce_error_at_append_is_told_with_the_rest(purgatory: Purgatory) -> None:
    orders, full = partition(purgatory), OSError("disk full")
    task = await begun(produce(purgatory, {"x": full, "orders": (orders, 1)}, timeout=30.0))
    assert not task.done()
    advance(orders, 1)
    assert await task == {"x": full, "orders": None}


async def test_produce_ended_does_not_count_off_others(purgatory: Purgatory) -> None:
    """It leaves each partition once: a second time would count off another wait."""
    log = Thresholds(purgatory, "log")
    other = log.reached(5, timeout=None)
    task = await begun(produce(purgatory, {1: (log, 5), 2: (log, 5), 3: (log, 4)}, timeout=30.0))
    task.cancel()
    await produce(purgatory, {"log": (log, 5)}, timeout=0)
    assert len(log) == 1
    assert log.advance(5) == 1
    assert other.done()


async def test_produce_refused_leaves_nothing(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        log = Thresholds(purgatory, "log")
        log.reached(1, timeout=None)
        with pytest.raises(PurgatoryFullError):
            await produce(purgatory, {"log": (log, 1)}, timeout=30.0)
        assert (len(log), purgatory.num_delayed) == (1, 1)


@pytest.mark.parametrize(
    "end",
    [lambda purgatory: purgatory.fail_for_key(("offset", "log", 5), LeadershipError()), Purgatory.close],
    ids=["fail_for_key", "close"],
)
async def test_produce_failed_by_the_purgatory_is_forgotten(
    purgatory: Purgatory, end: Callable[[Purgatory], object]
) -> None:
    """Nothing waits for offset 5 of either any more, so that another thread may advance to it."""
    log, other = Thresholds(purgatory, "log"), Thresholds(purgatory, "other")
    task = await begun(produce(purgatory, {1: (log, 5), 2: (other, 5)}, timeout=30.0))
    end(purgatory)
    with pytest.raises((LeadershipError, PurgatoryClosedError)):
        await task
    for thresholds in (log, other):
        assert await asyncio.to_thread(thresholds.advance, 5) == 0


async def test_produce_completed_from_outside_tells_what_was_not_acked(purgatory: Purgatory) -> None:
    orders, _, task = await to_both(purgatory)
    advance(orders, 1)
    (op,) = purgatory.waiting(("offset", "payments", 1))
    op.force_complete()
    answers = await task
    assert (answers["orders"], type(answers["payments"])) == (None, DeadlineError)


async def test_produce_ended_leaves_a_reached_partition(purgatory: Purgatory) -> None:
    """Nothing waits for an offset that was reached before, so that another thread may advance it."""
    orders, log = partition(purgatory), Thresholds(purgatory, "log", start=5)
    task = await begun(produce(purgatory, {"orders": (orders, 1), "log": (log, 5)}, timeout=30.0))
    assert await asyncio.to_thread(log.advance, 6) == 0
    advance(orders, 1)
    assert await task == {"orders": None, "log": None}
