"""Members that have been given a name and have not joined yet, and how many members there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Generation, GroupFullError, JoinError
from aiopurgatory.testing import ManualClock

from .helpers import AtFirstEnd, Join, formed, group_in, joins

# in the middle of something


async def test_expect_from_a_hook_while_it_opens_is_the_next(clock: ManualClock) -> None:
    at_end = AtFirstEnd()
    async with Purgatory(clock=clock, observers=[at_end]) as purgatory:
        group = group_in(purgatory, expected=["ann", "bob"])
        tasks = await joins(group, "ann")
        at_end.do = lambda: group.expect("cy")
        tasks += await joins(group, "bob")
        assert {await task for task in tasks} == {Generation(1, ("ann", "bob"), ())}
        assert (group.is_closed, group.members) == (False, ("ann", "bob", "cy"))


async def test_leave_from_a_hook_while_joins_fail_stays_left(clock: ManualClock) -> None:
    at_end = AtFirstEnd()
    async with Purgatory(clock=clock, observers=[at_end]) as purgatory:
        group = group_in(purgatory)
        await formed(group, clock, "ann", "bob", "cy")
        tasks = await joins(group, "ann", "bob")
        at_end.do = lambda: group.leave("bob")
        purgatory.fail_for_key("billing", OSError("coordinator moved"))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], OSError)
        assert isinstance(found[1], (OSError, JoinError))
        assert (group.members, group.is_closed) == (("ann", "cy"), True)
        tasks = await joins(group, "ann", "cy")
        assert (await tasks[0]).members == ("ann", "cy")


@pytest.mark.parametrize("call", ["join", "leave"])
async def test_call_right_after_fail_for_key_saves_no_join(purgatory: Purgatory, clock: ManualClock, call: str) -> None:
    """It closes the next barrier in the very iteration in which the joins at this one fail."""
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    tasks = await joins(group, "ann", "bob")
    again: list[Join] = []
    if call == "join":
        again.append(asyncio.create_task(group.join("cy")))
    purgatory.fail_for_key("billing", OSError("coordinator moved"))
    if call == "leave":
        group.leave("cy")
    for task in tasks:
        with pytest.raises(OSError, match="coordinator moved"):
            await task
    assert group.is_closed
    again += await joins(group, "ann", "bob")
    assert (await again[0]).number == 2


@pytest.mark.parametrize("closed", [True, False])
async def test_call_from_another_thread_changes_nothing(purgatory: Purgatory, clock: ManualClock, closed: bool) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.expect("cy")
    tasks = await joins(group, "ann") if closed else []
    calls: list[Callable[[], object]] = [
        partial(group.expect, "dan"),
        partial(group.leave, "cy"),
        partial(group.replace, "ann", "ann 2"),
    ]
    for call in calls:
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(call)
    assert (group.members, group.is_closed) == (("ann", "bob", "cy"), closed)
    tasks += await joins(group, "ann", "bob", "cy")
    assert (await tasks[-1]).members == ("ann", "bob", "cy")
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_expect_needs_no_open_purgatory(clock: ManualClock) -> None:
    purgatory = Purgatory(clock=clock)
    group = group_in(purgatory, initial_delay=0)
    group.expect("ann")
    async with purgatory:
        assert (await group.join("ann")).number == 1
    group.expect("bob")
    assert group.leave("bob")
    assert group.members == ("ann",)


# the largest group


async def test_group_full_refuses_new_members(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, max_members=2)
    await formed(group, clock, "ann", "bob")
    before = purgatory.statistics()
    with pytest.raises(GroupFullError, match=r"'cy' cannot join 'billing': 2 members \(max_members=2\)"):
        await group.join("cy")
    with pytest.raises(GroupFullError, match="'cy' cannot join"):
        group.expect("cy")
    assert purgatory.statistics() == before
    assert (group.is_closed, group.members) == (False, ("ann", "bob"))


async def test_expected_members_beyond_the_largest_group_stay(purgatory: Purgatory) -> None:
    """A group that was restored after the setting was made smaller."""
    group = group_in(purgatory, expected=["ann", "bob", "cy"], max_members=1)
    with pytest.raises(GroupFullError):
        await group.join("dan")
    tasks = await joins(group, "ann", "bob", "cy")
    assert (await tasks[0]).members == ("ann", "bob", "cy")


# the rebalance timeout


async def test_rebalance_timeout_set_counts_from_the_next_close(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.rebalance_timeout = 3.0
    (task,) = await joins(group, "ann")
    group.rebalance_timeout = 60.0  # too late for this one
    assert group.rebalance_timeout == 60.0
    await clock.advance(2.999)
    assert not task.done()
    await clock.advance(0.001)
    assert task.result() == Generation(2, ("ann",), ("bob",))
    group.expect("cy")
    (task,) = await joins(group, "ann")
    await clock.advance(59.999)
    assert not task.done()
    await clock.advance(0.001)
    assert task.result() == Generation(3, ("ann",), ("cy",))
