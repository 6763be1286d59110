"""Members that restart under another name, and take their place in the group again."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Generation, JoinError
from aiopurgatory.testing import ManualClock

from .helpers import check_empty, formed, group_in, joins


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
