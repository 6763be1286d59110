"""acks=all: one partition, several of them, and everything that ends the wait otherwise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import NotEnoughReplicasError

from .helpers import LeadershipError, acked, advance, partition


async def test_acked_when_the_last_replica_has_it(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 3)
    task = await acked(orders, 3, 30.0)
    assert orders.update(0, 3) == 0
    assert orders.update(1, 2) == 0
    assert orders.high_watermark == 2
    assert orders.update(1, 3) == 1
    assert await task == 3


async def test_acked_single_replica_never_parks(full: Purgatory) -> None:
    orders = partition(full, followers=0)
    orders.update("leader", 1)
    assert await orders.acked(1, timeout=30.0) == 1


@pytest.mark.parametrize("timeout", [0, -0.001, float("-inf")])
async def test_acked_without_time_tries_once(full: Purgatory, timeout: float) -> None:
    orders = partition(full)
    advance(orders, 1)
    assert await orders.acked(1, timeout=timeout) == 1
    with pytest.raises(TimeoutError, match="'orders' had not reached offset 2"):
        await orders.acked(2, timeout=timeout)


async def test_high_watermark_never_moves_back(purgatory: Purgatory) -> None:
    orders = partition(purgatory, start=5)
    orders.update(0, 2)
    assert orders.high_watermark == 5
    orders.update("leader", 9)
    orders.update(1, 9)
    assert orders.high_watermark == 5
    orders.update(0, 7)
    assert orders.high_watermark == 7


async def test_drop_of_the_slowest_acks(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 4)
    orders.update(0, 4)
    task = await acked(orders, 4)
    assert orders.drop(1) == 1
    assert await task == 4
    assert orders.in_sync == {"leader": 4, 0: 4}


async def test_too_few_replicas_ends_waits_with_error(purgatory: Purgatory) -> None:
    orders = partition(purgatory, min_in_sync=2)
    orders.update("leader", 4)
    orders.update(0, 2)
    orders.update(1, 2)
    task = await acked(orders, 4)
    assert orders.drop(0) == 0
    assert orders.drop(1) == 1  # the leader alone has it: that is not safe
    with pytest.raises(NotEnoughReplicasError, match=r"too few in-sync replicas of 'orders': 1 \(min_in_sync=2\)"):
        await task
    assert orders.high_watermark == 2
    with pytest.raises(NotEnoughReplicasError):
        await orders.acked(4, timeout=None)
    assert await orders.acked(2, timeout=None) == 2  # was safe before
    assert purgatory.num_delayed == 0


async def test_too_few_replicas_recovers_with_add(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=1, min_in_sync=2, start=2)
    orders.update("leader", 4)
    orders.drop(0)
    orders.update("leader", 5)
    assert orders.high_watermark == 2
    orders.add(0, 3)
    assert orders.high_watermark == 3
    task = await acked(orders, 5)
    assert orders.update(0, 5) == 1
    assert await task == 5


async def test_too_few_from_the_start_ends_at_once(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=0, min_in_sync=2)
    with pytest.raises(NotEnoughReplicasError):
        await orders.acked(1, timeout=30.0)


async def test_error_for_is_what_a_wait_would_raise(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=1, min_in_sync=2, start=2)
    assert orders.error_for(3) is None
    with pytest.raises(TimeoutError):  # of which it does not tell
        await orders.acked(3, timeout=0)
    orders.drop(0)
    error = orders.error_for(3)
    assert isinstance(error, NotEnoughReplicasError)
    assert str(error) == "too few in-sync replicas of 'orders': 1 (min_in_sync=2)"
    assert orders.error_for(2) is None  # is safe
    orders.add(0, 2)
    assert orders.error_for(3) is None
    orders.fail(lost := LeadershipError("moved"))
    assert orders.error_for(3) is orders.error_for(2) is lost
    assert purgatory.statistics().checks == 0


async def test_leadership_lost_ends_waits_with_error(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 1)
    task = await acked(orders, 1)
    assert orders.fail(LeadershipError("moved")) == 1
    with pytest.raises(LeadershipError, match="moved"):
        await task
    assert (orders.update(0, 1), orders.update(1, 1), orders.drop(1)) == (0, 0, 0)
    with pytest.raises(LeadershipError):
        await orders.acked(1, timeout=None)


#: With the leader and two followers at offset 5.
REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda orders: orders.update(0, 6),
        "0 cannot be at offset 6, ahead of the leader 'leader' at 5; update the leader",
    ),
    (lambda orders: orders.add(7, 6), "7 cannot be at offset 6, ahead of the leader 'leader' at 5"),
    (lambda orders: orders.add(7, 4), "7 is not in sync at offset 4; it must reach 5, the high watermark"),
    (lambda orders: orders.update("leader", 4), "the leader 'leader' cannot go back from offset 5 to 4"),
    (
        lambda orders: orders.update(7, 5),
        "7 is not in sync; in sync are ['leader', 0, 1]; call add() once it has caught",
    ),
    (lambda orders: orders.drop(7), "cannot drop 7, which is not in sync; in sync are ['leader', 0, 1]"),
    (lambda orders: orders.drop("leader"), "cannot drop 'leader', the leader; call fail() if the leader is gone"),
    (lambda orders: orders.fail("moved"), "exc must be an instance of Exception"),
    *((lambda orders, bad=bad: orders.update(0, bad), "offset must be an int") for bad in (9.5, True, None)),
    *((lambda orders, bad=bad: orders.add(7, bad), "offset must be an int") for bad in (9.5, True, None)),
    *((lambda orders, bad=bad: orders.error_for(bad), "offset must be an int") for bad in (9.5, True, None)),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
async def test_mistake_is_refused_and_changes_nothing(
    purgatory: Purgatory, call: Callable[[Any], object], message: str
) -> None:
    orders = partition(purgatory, start=5)
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        call(orders)
    assert orders.in_sync == {"leader": 5, 0: 5, 1: 5}
    advance(orders, 6)
    assert orders.high_watermark == 6


async def test_drop_of_the_last_replica_is_refused(purgatory: Purgatory) -> None:
    with pytest.raises(ValueError, match=r"cannot drop 'leader', the leader; call fail\(\) if the leader is gone"):
        partition(purgatory, followers=0).drop("leader")


async def test_update_from_another_thread_is_refused(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 1)
    task = await acked(orders, 1)
    for call in (partial(orders.update, 0, 1), partial(orders.drop, 0), partial(orders.add, 7, 1)):
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(call)
    assert orders.in_sync == {"leader": 1, 0: 0, 1: 0}
    assert advance(orders, 1) == 1
    assert await task == 1
