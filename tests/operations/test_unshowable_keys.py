"""Keys and members with a ``__repr__`` that raises: the collections end their waits all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import DeadlineError, Purgatory
from aiopurgatory.operations import Feed, Heartbeats, JoinBarrier, JoinError, Replicas, Thresholds, produce
from aiopurgatory.testing import ManualClock, check_invariants


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


async def begun(coroutine: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    return task


async def test_reached_at_the_deadline_raises_deadline_error(purgatory: Purgatory, clock: ManualClock) -> None:
    task = Thresholds(purgatory, Unshowable()).reached(5, timeout=1.0)
    await clock.advance(1.0)
    with pytest.raises(DeadlineError, match=r"^<Unshowable> had not reached offset 5 after 1\.0 s$"):
        await task


async def test_produce_at_the_deadline_keeps_every_answer(purgatory: Purgatory, clock: ManualClock) -> None:
    slow, key = Unshowable(), Unshowable()
    quick = Replicas(purgatory, key, ["leader", "follower"])
    required: Any = {"quick": (quick, 1), slow: (Thresholds(purgatory, "slow"), 7)}
    task = await begun(produce(purgatory, required, timeout=1.0))
    quick.update("leader", 1)
    quick.update("follower", 1)
    await clock.advance(1.0)
    answers = await task
    assert answers["quick"] is None
    assert str(answers[slow]) == "<Unshowable> was not acked up to 7 after 1.0 s"


@pytest.mark.parametrize("name", ["leave", "replace", "join again"])
async def test_barrier_ends_the_join_of_a_member(purgatory: Purgatory, name: str) -> None:
    group: JoinBarrier[Any] = JoinBarrier(purgatory, Unshowable(), rebalance_timeout=60.0, expected=["other"])
    member = Unshowable()
    task = await begun(group.join(member))
    if name == "leave":
        assert group.leave(member)
    elif name == "replace":
        assert group.replace(member, Unshowable())
    else:
        (await begun(group.join(member))).cancel()
    with pytest.raises(JoinError, match=r"^<Unshowable> (has left|was replaced by <Unshowable> in|has joined) <Unsh"):
        await task
    check_invariants(purgatory)


async def test_reprs_and_refusals_name_the_class(purgatory: Purgatory) -> None:
    key, member = Unshowable(), Unshowable()
    replicas = Replicas(purgatory, key, ["leader", member])
    whatever: Any = lambda *_: None  # noqa: E731
    source: Any = Unshowable()
    things: list[object] = [
        replicas,
        Thresholds(purgatory, key),
        JoinBarrier(purgatory, key, rebalance_timeout=None),
        Heartbeats(purgatory, key, timeout=1.0, on_missed=whatever),
        Feed(purgatory, key, source),
    ]
    assert all("<Unshowable>" in repr(thing) for thing in things)
    with pytest.raises(ValueError, match=r"^<Unshowable> is not in sync; in sync are \['leader', <Unshowable>\]; "):
        replicas.update(Unshowable(), 1)
    with pytest.raises(ValueError, match=r"^<Unshowable> cannot be at offset 1, ahead of the leader 'leader' at 0; "):
        replicas.update(member, 1)
