"""Members that restart under another name, and take their place in the group again."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Generation, JoinBarrier, JoinError
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import Join, check_empty, formed, group_in, joins

# while the barrier is open


async def test_replace_open_keeps_place_and_number(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    before = await formed(group, clock, "ann", "bob", "cy")
    assert group.replace("ann", "ann 2")
    assert not group.is_closed
    assert group.members == ("ann 2", "bob", "cy")
    assert group.generation == Generation(1, ("ann 2", "bob", "cy"), ())
    assert before.members == ("ann", "bob", "cy")  # as it was
    await clock.advance(100.0)
    assert group.members == ("ann 2", "bob", "cy")
    check_empty(group)


async def test_replace_open_then_rebalance_waits_for_the_successor(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.replace("ann", "ann 2")
    (task,) = await joins(group, "bob")
    assert not task.done()
    assert await group.join("ann 2") == Generation(2, ("ann 2", "bob"), ())
    assert (await task).members == ("ann 2", "bob")
    check_empty(group)


async def test_replace_open_then_leave_closes(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.replace("ann", "ann 2")
    assert not group.leave("ann")
    assert group.leave("ann 2")
    assert group.is_closed
    assert await group.join("bob") == Generation(2, ("bob",), ())


async def test_replace_open_of_a_member_only_announced(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    group.expect("bob")
    assert group.replace("bob", "bob 2")
    assert group.generation.members == ("ann",)
    assert group.leave("bob 2")
    assert not group.is_closed  # it has been in no generation


# while it is closed


async def test_replace_closed_fails_the_join_and_waits_for_the_successor(
    purgatory: Purgatory, clock: ManualClock
) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    older, other = await joins(group, "ann", "bob")
    assert group.replace("ann", "ann 2")
    with pytest.raises(JoinError, match=r"^'ann' was replaced by 'ann 2' in 'billing'$"):
        await older
    assert [group.is_waiting(member) for member in group.members] == [False, True, False]
    tasks = await joins(group, "cy")
    assert not other.done()
    tasks += await joins(group, "ann 2")
    assert await other == Generation(2, ("ann 2", "bob", "cy"), ())
    check_empty(group)


async def test_replace_closed_of_a_missing_member(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    (task,) = await joins(group, "bob")
    assert group.replace("ann", "ann 2")
    assert await group.join("ann 2") == Generation(2, ("ann 2", "bob"), ())
    assert (await task).number == 2
    check_empty(group)


async def test_replace_closed_successor_is_dropped_at_the_deadline(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    tasks = await joins(group, "bob")
    group.replace("ann", "ann 2")
    await clock.advance(10.0)
    assert tasks[0].result() == Generation(2, ("bob",), ("ann 2",))
    check_empty(group)


async def test_replace_in_the_initial_delay_waits_for_the_successor(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    older, other = await joins(group, "ann", "bob")
    group.replace("ann", "ann 2")
    with pytest.raises(JoinError):
        await older
    await clock.advance(2.0)
    assert not other.done()
    (task,) = await joins(group, "ann 2")
    await clock.advance(4.0)
    assert task.result() == other.result() == Generation(1, ("ann 2", "bob"), ())


async def test_replace_successor_that_gives_up_is_still_expected(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    other, _ = await joins(group, "bob", "ann")
    group.replace("ann", "ann 2")
    (task,) = await joins(group, "ann 2")
    task.cancel()
    await asyncio.sleep(0)
    await joins(group, "cy")
    assert not other.done()
    assert group.members == ("ann 2", "bob", "cy")
    group.leave("ann 2")
    assert (await other).members == ("bob", "cy")


# the result of a join that nobody has received


async def test_replace_then_other_join_undelivered_still_leaves(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    tasks = await joins(group, "ann", "bob")
    joined = asyncio.create_task(group.join("cy"))
    await asyncio.sleep(0)  # it opens
    assert group.generation.number == 2
    group.replace("ann", "ann 2")
    tasks[1].cancel()
    assert (await joined).number == 2
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert group.members == ("ann 2", "cy")  # the others must not rely on bob
    assert group.is_closed


# mistakes


async def test_replace_of_a_stranger_changes_nothing(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    assert not group.replace("bob", "bob 2")
    assert group.members == ("ann",)


@pytest.mark.parametrize("successor", ["ann", "bob"])
async def test_replace_by_a_member_is_refused(purgatory: Purgatory, clock: ManualClock, successor: str) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    with pytest.raises(ValueError, match=rf"^successor must not be a member of 'billing' yet, got '{successor}'$"):
        group.replace("ann", successor)
    assert group.members == ("ann", "bob")


async def test_replace_in_another_thread_is_refused(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(group.replace, "ann", "ann 2")
    assert group.members == ("ann",)


# at random


async def settle(clock: ManualClock) -> None:
    await clock.advance(0.1)
    await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
async def test_replace_at_random_keeps_the_group_whole(purgatory: Purgatory, clock: ManualClock, seed: int) -> None:
    chosen = random.Random(seed)
    group: JoinBarrier[str] = JoinBarrier(
        purgatory, "g", rebalance_timeout=5.0, initial_delay=chosen.choice([0.0, 1.0])
    )
    tasks: list[Join] = []
    for number in range(200):
        members = group.members
        action = chosen.choice(["join", "join", "again", "again", "replace", "replace", "leave", "expect", "cancel"])
        if action in ("join", "expect") and len(members) < 6:
            tasks += await joins(group, f"m{number}") if action == "join" else []
            if action == "expect":
                group.expect(f"m{number}")
        elif action == "again" and members:
            tasks += await joins(group, chosen.choice(members))
        elif action == "replace" and members:
            place = chosen.randrange(len(members))
            number_before = group.generation.number
            assert group.replace(members[place], f"r{number}")
            assert group.members == (*members[:place], f"r{number}", *members[place + 1 :])
            assert group.generation.number == number_before
        elif action == "leave" and members:
            group.leave(chosen.choice(members))
        elif action == "cancel" and tasks:
            chosen.choice(tasks).cancel()
        await settle(clock)
        check_invariants(purgatory)
        assert set(group.generation.members) <= set(group.members) or group.is_closed or not group.generation.members
        assert len(group) == sum(map(group.is_waiting, group.members))
    for member in group.members:
        group.leave(member)
    await clock.advance(20.0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (purgatory.num_delayed, group.members) == (0, ())
