"""acks=all: one partition, several of them, and everything that ends the wait otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Outcome, Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.operations import DelayedProduce, NotEnoughReplicasError, Replicas, ThresholdWatchers, produce
from aiopurgatory.testing import ManualClock, check_invariants


class NotLeaderError(Exception):
    pass


def partition(purgatory: Purgatory, key: str = "orders", *, followers: int = 2, **options: Any) -> Replicas:
    return Replicas(purgatory, key, ["leader", *range(followers)], **options)


# one partition


async def test_acked_when_the_last_replica_has_it(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 3)
    acked = asyncio.create_task(orders.acked(3, timeout=30.0))
    await asyncio.sleep(0)
    assert orders.update(0, 3) == 0
    assert orders.update(1, 2) == 0
    assert orders.high_watermark == 2
    assert orders.update(1, 3) == 1
    assert await acked == 3


async def test_acked_single_replica_never_parks(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=0)
    orders.update("leader", 1)
    op = orders.watch(1)
    assert (op.done(), purgatory.num_delayed, purgatory.watched) == (True, 0, 0)


async def test_acked_at_deadline_raises_timeout_error(purgatory: Purgatory, clock: ManualClock) -> None:
    orders = partition(purgatory)
    orders.update("leader", 1)
    acked = asyncio.create_task(orders.acked(1, timeout=1.0))
    await clock.advance(1.0)
    with pytest.raises(TimeoutError, match="'orders' had not reached offset 1"):
        await acked
    assert orders.waiting == 0


async def test_update_with_the_deadline_wins(purgatory: Purgatory, clock: ManualClock) -> None:
    """A follower that comes back at the very deadline: the condition is asked once more (I10)."""
    orders = partition(purgatory, followers=1)
    orders.update("leader", 1)
    op = orders.watch(1, timeout=1.0)
    await clock.advance(0.5)
    orders._offsets[0] = 1
    orders._value = 1  # reached, and nobody was told
    await clock.advance(0.5)
    assert (op.outcome, op.result()) == (Outcome.COMPLETED, 1)


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
    op = orders.watch(4)
    assert orders.drop(1) == 1
    assert op.result() == 4
    assert orders.in_sync == {"leader": 4, 0: 4}


async def test_too_few_replicas_ends_waits_with_error(purgatory: Purgatory) -> None:
    orders = partition(purgatory, min_in_sync=2)
    orders.update("leader", 4)
    orders.update(0, 2)
    orders.update(1, 2)
    acked = asyncio.create_task(orders.acked(4))
    await asyncio.sleep(0)
    assert orders.drop(0) == 0
    assert orders.drop(1) == 1  # the leader alone has it: that is not safe
    with pytest.raises(NotEnoughReplicasError, match="1 of the replicas of 'orders' are in sync, and min_in_sync is 2"):
        await acked
    assert orders.high_watermark == 2
    with pytest.raises(NotEnoughReplicasError):
        await orders.acked(4)
    assert await orders.acked(2) == 2  # was safe before
    assert (purgatory.num_delayed, orders.waiting) == (0, 0)


async def test_too_few_replicas_recovers_with_add(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=1, min_in_sync=2, start=2)
    orders.update("leader", 4)
    orders.drop(0)
    orders.update("leader", 5)
    assert orders.high_watermark == 2
    orders.add(0, 3)
    assert orders.high_watermark == 3
    op = orders.watch(5)
    assert orders.update(0, 5) == 1
    assert op.result() == 5


async def test_too_few_from_the_start_ends_at_once(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=0, min_in_sync=2)
    with pytest.raises(NotEnoughReplicasError):
        await orders.acked(1, timeout=30.0)


async def test_leadership_lost_ends_waits_with_error(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.update("leader", 1)
    acked = asyncio.create_task(orders.acked(1))
    await asyncio.sleep(0)
    assert orders.fail(NotLeaderError("moved")) == 1
    with pytest.raises(NotLeaderError, match="moved"):
        await acked
    assert (orders.update(0, 1), orders.update(1, 1), orders.drop(1)) == (0, 0, 0)
    with pytest.raises(NotLeaderError):
        await orders.acked(1)


async def test_replica_that_is_not_in_sync_is_refused(purgatory: Purgatory) -> None:
    orders = partition(purgatory, start=5)
    with pytest.raises(ValueError, match=r"replica must be one of \['leader', 0, 1\], got 7"):
        orders.update(7, 9)
    with pytest.raises(ValueError, match="replica must be one of"):
        orders.drop(7)
    with pytest.raises(ValueError, match=r"offset must be >= the high watermark 5 to be in sync, got 4"):
        orders.add(7, 4)
    with pytest.raises(TypeError, match="offset must be an int"):
        orders.update(0, 9.5)  # type: ignore[arg-type]
    assert orders.in_sync == {"leader": 5, 0: 5, 1: 5}


async def test_drop_of_the_last_replica_is_refused(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=0)
    with pytest.raises(ValueError, match="replica must not be the last one in sync"):
        orders.drop("leader")


@pytest.mark.parametrize(
    ("replicas", "options", "error", "message"),
    [
        ([], {}, ValueError, "replicas must name at least one replica, got none"),
        ("leader", {}, TypeError, "replicas must be an iterable of names"),
        (["leader"], {"min_in_sync": 0}, ValueError, "min_in_sync must be >= 1, got 0"),
        (["leader"], {"min_in_sync": 1.5}, TypeError, "min_in_sync must be an int"),
        (["leader"], {"start": None}, TypeError, "start must be an int"),
    ],
)
async def test_replicas_with_bad_argument_are_refused(
    purgatory: Purgatory, replicas: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Replicas(purgatory, "orders", replicas, **options)


# several partitions


async def test_produce_waits_for_every_partition(purgatory: Purgatory) -> None:
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    op = produce(purgatory, {"orders": (orders, 3), "payments": (payments, 5)}, timeout=30.0)
    orders.advance(3)
    assert not op.done()
    assert payments.advance(4) == 0
    assert payments.advance(5) == 1
    assert await op == {"orders": None, "payments": None}
    assert (orders.waiting, payments.waiting, purgatory.watched) == (0, 0, 0)


class CountingWatchers(ThresholdWatchers):
    asked = 0

    @property
    def value(self) -> int:
        self.asked += 1
        return super().value


async def test_produce_does_not_ask_satisfied_partitions_again(purgatory: Purgatory) -> None:
    first, second = CountingWatchers(purgatory, 1), CountingWatchers(purgatory, 2)
    op = produce(purgatory, {1: (first, 1), 2: (second, 1)}, timeout=30.0)
    first.advance(1)
    asked, asked_other = first.asked, second.asked
    first.advance(100)
    assert second.advance(1) == 1
    assert (first.asked, second.asked > asked_other) == (asked, True)
    assert await op == {1: None, 2: None}


async def test_produce_satisfied_partition_that_fails_later_stays_acked(purgatory: Purgatory) -> None:
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    op = produce(purgatory, {"orders": (orders, 1), "payments": (payments, 1)}, timeout=30.0)
    orders.advance(1)
    orders.fail(NotLeaderError())
    payments.advance(1)
    assert await op == {"orders": None, "payments": None}


async def test_produce_at_deadline_tells_of_each_partition(purgatory: Purgatory, clock: ManualClock) -> None:
    parts = {key: partition(purgatory, key) for key in ("a", "b", "c", "d")}
    required = {key: (part, 7) for key, part in parts.items()}
    op = produce(purgatory, required, timeout=1.0)
    parts["b"].advance(7)
    parts["d"].fail(lost := NotLeaderError())
    await clock.advance(0.999)
    assert not op.done()
    await clock.advance(0.001)
    answers = await op
    assert op.outcome is Outcome.EXPIRED
    assert list(answers) == ["a", "b", "c", "d"]
    assert (answers["b"], answers["d"]) == (None, lost)
    for key in ("a", "c"):
        assert isinstance(answers[key], TimeoutError)
        assert str(answers[key]) == f"'{key}' was not acked up to 7 after 1.0 s"
    assert [part.waiting for part in parts.values()] == [0, 0, 0, 0]


async def test_produce_leadership_lost_ends_that_partition(purgatory: Purgatory) -> None:
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    op = produce(purgatory, {"orders": (orders, 1), "payments": (payments, 1)}, timeout=30.0)
    assert orders.fail(lost := NotLeaderError("moved")) == 0
    assert not op.done()
    assert payments.advance(1) == 1
    assert await op == {"orders": lost, "payments": None}


async def test_produce_too_few_replicas_ends_that_partition(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=1, min_in_sync=2)
    op = produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)
    orders.drop(0)
    assert isinstance((await op)["orders"], NotEnoughReplicasError)


@pytest.mark.parametrize("acks", [0, 1])
async def test_produce_acks_0_or_1_never_parks(purgatory: Purgatory, acks: int) -> None:
    orders = partition(purgatory)
    op = produce(purgatory, {"orders": (orders, 1), "x": (error := NotLeaderError())}, timeout=30.0, acks=acks)
    assert (op.done(), purgatory.num_delayed, orders.waiting) == (True, 0, 0)
    assert await op == {"orders": None, "x": error}


async def test_produce_single_replica_never_parks(purgatory: Purgatory) -> None:
    orders = partition(purgatory, followers=0)
    orders.update("leader", 1)
    op = produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)
    assert (op.done(), purgatory.watched) == (True, 0)
    assert await op == {"orders": None}


async def test_produce_every_partition_in_error_never_parks(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    orders.fail(lost := NotLeaderError())
    op = produce(purgatory, {"orders": (orders, 1), "x": (full := OSError("disk full"))}, timeout=30.0)
    assert (op.done(), purgatory.watched) == (True, 0)
    assert await op == {"orders": lost, "x": full}


async def test_produce_error_at_append_is_told_with_the_rest(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    op = produce(purgatory, {"x": (full := OSError("disk full")), "orders": (orders, 1)}, timeout=30.0)
    assert not op.done()
    orders.advance(1)
    assert await op == {"x": full, "orders": None}


async def test_produce_cancelled_leaves_nothing(purgatory: Purgatory) -> None:
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")

    async def serve() -> None:
        await produce(purgatory, {"orders": (orders, 1), "payments": (payments, 1)}, timeout=30.0)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    assert (orders.waiting, payments.waiting, purgatory.watched) == (1, 1, 2)
    task.cancel()
    check_invariants(purgatory)
    assert (orders.waiting, payments.waiting, purgatory.watched) == (0, 0, 0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_produce_ended_does_not_count_off_others(purgatory: Purgatory) -> None:
    """Who is done with a partition leaves it once: a second time would count off somebody else."""
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    other = payments.watch(5)
    op = produce(purgatory, {"orders": (orders, 1), "payments": (payments, 5)}, timeout=30.0)
    op.cancel()
    op.cancel()
    produce(purgatory, {"payments": (payments, 5)}, timeout=30.0, acks=1)
    assert payments.waiting == 1
    payments.advance(5)
    assert other.done()


async def test_produce_refused_leaves_nothing(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=1) as purgatory:
        orders = partition(purgatory)
        orders.watch(1)
        with pytest.raises(PurgatoryFullError):
            produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)
        assert (orders.waiting, purgatory.num_delayed) == (1, 1)


async def test_produce_purgatory_closed_fails(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    op = produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)
    purgatory.close()
    with pytest.raises(PurgatoryClosedError):
        await op
    with pytest.raises(PurgatoryClosedError):
        produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)


async def test_produce_in_another_purgatory_is_refused(purgatory: Purgatory) -> None:
    orders = partition(Purgatory("other"))
    with pytest.raises(ValueError, match=r"required must wait in <Purgatory 'test' .*, got 'orders' in"):
        produce(purgatory, {"orders": (orders, 1)}, timeout=30.0)


@pytest.mark.parametrize("acks", [-2, 2, "all", None])
async def test_produce_with_bad_acks_is_refused(purgatory: Purgatory, acks: Any) -> None:
    with pytest.raises(ValueError, match=r"acks must be -1 \(all\), 0 or 1, got"):
        produce(purgatory, {"orders": (partition(purgatory), 1)}, timeout=30.0, acks=acks)


async def test_produce_with_bad_required_is_refused(purgatory: Purgatory) -> None:
    orders = partition(purgatory)
    with pytest.raises(ValueError, match="required must name at least one partition, got none"):
        produce(purgatory, {}, timeout=30.0)
    with pytest.raises(TypeError, match="offset must be an int"):
        produce(purgatory, {"orders": (orders, "1")}, timeout=30.0)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="timeout must be >= 0 s"):
        produce(purgatory, {"orders": (orders, 1)}, timeout=-1.0)
    assert orders.waiting == 0


async def test_produce_completed_from_outside_tells_what_was_not_acked(purgatory: Purgatory) -> None:
    orders, payments = partition(purgatory, "orders"), partition(purgatory, "payments")
    op = produce(purgatory, {"orders": (orders, 1), "payments": (payments, 1)}, timeout=30.0)
    orders.advance(1)
    assert isinstance(op, DelayedProduce)
    op.force_complete()
    answers = await op
    assert (answers["orders"], type(answers["payments"])) == (None, TimeoutError)
    assert payments.waiting == 0
