"""Joins that end otherwise than with a generation: the group is as if they had not come."""

from __future__ import annotations

import asyncio

import pytest

from aiopurgatory import Purgatory, PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.operations import Generation
from aiopurgatory.testing import ManualClock

from .helpers import begun, check_empty, formed, group_in, joins


async def test_join_while_the_answers_are_on_their_way_is_the_next(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, initial_delay=0, expected=["ann"])
    await group.join("ann")
    cy, bob = await joins(group, "cy", "bob")
    group.leave("ann")
    tasks = await joins(group, "dan")
    assert {await task for task in (cy, bob)} == {Generation(2, ("cy", "bob"), ())}
    assert not tasks[0].done()  # too late for that one
    cy2, bob2 = await joins(group, "cy", "bob")
    assert (await tasks[0]) is (await cy2) is (await bob2)


async def test_passed_but_cancelled_member_leaves(purgatory: Purgatory) -> None:
    """Its task is cancelled in the turn in which the barrier opens: the others must not rely on it."""
    group = group_in(purgatory, expected=["ann", "bob"])
    ann, bob = await joins(group, "ann", "bob")
    assert not ann.done()
    assert group.generation.members == ("ann", "bob")
    ann.cancel()
    assert (await bob).members == ("ann", "bob")
    with pytest.raises(asyncio.CancelledError):
        await ann
    assert group.is_closed
    assert group.members == ("bob",)
    assert (await group.join("bob")) == Generation(2, ("bob",), ())


async def test_passed_but_cancelled_member_that_joins_anew_stays(purgatory: Purgatory) -> None:
    group = group_in(purgatory, expected=["ann", "bob"])
    ann, bob = await joins(group, "ann", "bob")
    ann.cancel()
    again = group.join("ann")
    again.send(None)  # before the cancelled task has its turn
    assert (await bob).number == 1
    with pytest.raises(asyncio.CancelledError):
        await ann
    await joins(group, "bob")
    with pytest.raises(StopIteration) as found:
        again.send(None)
    assert found.value.value == Generation(2, ("ann", "bob"), ())


async def test_purgatory_closed_answers_every_join(purgatory: Purgatory) -> None:
    group = group_in(purgatory)
    tasks = await joins(group, "ann", "bob")
    purgatory.close()
    for task in tasks:
        with pytest.raises(PurgatoryClosedError):
            await task
    with pytest.raises(PurgatoryClosedError):
        await group.join("cy")
    assert (group.is_closed, group.is_waiting("ann")) == (False, False)


@pytest.mark.parametrize("known", [True, False])
async def test_fail_for_key_of_one_join_is_as_if_it_never_joined(
    purgatory: Purgatory, clock: ManualClock, known: bool
) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    member = "ann" if known else "cy"
    (task,) = await joins(group, member)
    (op,) = purgatory.fail_for_key(("join", "billing", member), OSError("moved"))
    assert op.done()
    assert (group.is_waiting(member), member in group.members) == (False, known)
    with pytest.raises(OSError, match="moved"):
        await task
    tasks = await joins(group, "ann", "bob")
    assert (await tasks[0]).members == ("ann", "bob")


async def test_barrier_ends_with_a_join_that_ends_before_it(purgatory: Purgatory) -> None:
    """As when expire_all() meets a later barrier of the group after its joins."""
    group = group_in(purgatory)
    tasks = await joins(group, "ann", "bob")
    purgatory.complete_for_key(("join", "billing", "ann"))
    assert [(await task).number for task in tasks] == [1, 1]
    check_empty(group)


@pytest.mark.parametrize("expected", [(), ("ann", "bob", "cy")])
async def test_expire_all_opens_the_barrier(purgatory: Purgatory, expected: tuple[str, ...]) -> None:
    group = group_in(purgatory, expected=expected)
    tasks = await joins(group, "ann", "bob")
    purgatory.expire_all()
    assert [(await task).members for task in tasks] == [("ann", "bob")] * 2
    assert group.generation.number == 1
    assert group.members == ("ann", "bob")
    check_empty(group)


@pytest.mark.parametrize("max_pending", [1, 2])
async def test_join_refused_leaves_the_group_as_it_was(clock: ManualClock, max_pending: int) -> None:
    async with Purgatory(clock=clock, max_pending=max_pending) as purgatory:
        group = group_in(purgatory)
        if max_pending == 2:
            (task,) = await joins(group, "ann")  # with the barrier, as many as may wait
            with pytest.raises(PurgatoryFullError):
                await group.join("bob")
            assert (group.members, task.done()) == (("ann",), False)
            await clock.advance(2.0)
            assert task.result().members == ("ann",)
        else:
            with pytest.raises(PurgatoryFullError):
                await group.join("ann")
            assert group.members == ()
        check_empty(group)


async def test_leave_refused_keeps_the_member(clock: ManualClock) -> None:
    async with Purgatory(clock=clock, max_pending=2) as purgatory:
        group = group_in(purgatory, expected=["ann"])
        await group.join("ann")
        other = group_in(purgatory)
        (task,) = await joins(other, "x")
        with pytest.raises(PurgatoryFullError):
            group.leave("ann")
        assert (group.members, group.is_closed) == (("ann",), False)
        task.cancel()


# the result of a join that nobody has received


async def test_replace_then_other_join_undelivered_still_leaves(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    tasks = await joins(group, "ann", "bob")
    joined = await begun(group.join("cy"))
    assert group.generation.number == 2
    group.replace("ann", "ann 2")
    tasks[1].cancel()
    assert (await joined).number == 2
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert group.members == ("ann 2", "cy")  # the others must not rely on bob
    assert group.is_closed
