"""The join-group barrier: its members, how long they wait, and their generations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiopurgatory import Observer, Outcome, Purgatory
from aiopurgatory.operations import Generation, JoinBarrier
from aiopurgatory.testing import ManualClock

from .helpers import begun, check_empty, group_in, joins

# the first generation


async def test_initial_delay_takes_all_that_come(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    tasks = await joins(group, "ann", "bob")
    await clock.advance(1.999)
    assert group.is_closed
    await clock.advance(2.001)  # bob came after the barrier was closed for ann: a second delay
    generation = await tasks[0]
    assert generation == Generation(1, ("ann", "bob"), ())
    assert await tasks[1] is generation is group.generation
    check_empty(group)


async def test_complete_for_key_opens_it_during_the_initial_delay(purgatory: Purgatory) -> None:
    group = group_in(purgatory)
    tasks = await joins(group, "ann", "bob")
    purgatory.complete_for_key(group.key)
    assert [(await task).members for task in tasks] == [("ann", "bob")] * 2
    check_empty(group)


async def test_rebalance_timeout_0_still_ends_in_a_later_turn(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, rebalance_timeout=0)
    tasks = await joins(group, "ann", "bob")
    await clock.advance(0.001)
    assert tasks[1].result().members == ("ann", "bob")


async def test_expected_members_open_it_without_delay(purgatory: Purgatory) -> None:
    group = group_in(purgatory, expected=["ann", "bob"])
    tasks = await joins(group, "ann", "cy")
    assert group.members == ("ann", "bob", "cy")
    assert not tasks[0].done()
    assert (await group.join("bob")).members == ("ann", "bob", "cy")
    assert purgatory.statistics().wakeups == 0


async def test_rebalance_timeout_none_waits_for_all(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, rebalance_timeout=None, expected=["ann", "bob"])
    (task,) = await joins(group, "ann")
    await clock.advance(1e6)
    assert not task.done()
    assert (await group.join("bob")).members == ("ann", "bob")


async def test_barrier_of_thousands_is_linear_and_complete(purgatory: Purgatory) -> None:
    members = [str(number) for number in range(2_000)]
    group = group_in(purgatory, expected=members)
    tasks = await joins(group, *members)
    assert {await task for task in tasks} == {Generation(1, tuple(members), ())}
    check_empty(group)


async def test_barrier_does_not_keep_the_session_of_its_first_join(requests: Any) -> None:
    class Seeing(Observer):
        def ended(self, purgatory: Any, op: Any, outcome: Outcome, waited: float, lateness: float | None) -> None:
            seen.append(requests.session.get())

    seen: list[object] = []
    async with Purgatory(observers=[Seeing()]) as purgatory:
        group = JoinBarrier[str](purgatory, "key", rebalance_timeout=None, expected=["ann", "bob", "cy"])

        async def join() -> None:
            leaving = await begun(group.join("ann"))
            leaving.cancel()
            await asyncio.wait([leaving])

        session = await requests.handle(join)
        seen.clear()
        assert group.is_closed
        assert requests.are_over(session)
        bob = await begun(group.join("bob"))
        purgatory.fail_for_key("key", LookupError("moved"))
        with pytest.raises(LookupError):
            await bob
        assert set(seen) == {None}
