"""Members that have been given a name and have not joined yet, and how many members there may be."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from aiopurgatory import Purgatory, PurgatoryFullError
from aiopurgatory.operations import Generation, GroupFullError, JoinBarrier, JoinError
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import AtFirstEnd, Join, check_empty, formed, group_in, joins

# while the barrier is closed


async def test_expect_closed_waits_until_it_joins(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    tasks = await joins(group, "bob")
    group.expect("cy")
    assert group.members == ("ann", "bob", "cy")
    assert not group.is_waiting("cy")
    tasks += await joins(group, "ann")
    await clock.advance(9.0)
    assert not tasks[0].done()
    assert await group.join("cy") == Generation(2, ("ann", "bob", "cy"), ())
    check_empty(group)


async def test_expect_closed_then_leave_opens(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    tasks = await joins(group, "bob")
    group.expect("cy")
    tasks += await joins(group, "ann")
    assert not tasks[0].done()
    assert group.leave("cy")
    assert await tasks[0] == Generation(2, ("ann", "bob"), ())
    assert not group.leave("cy")


async def test_expect_closed_is_dropped_at_the_deadline(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    tasks = await joins(group, "bob")
    await clock.advance(5.0)
    group.expect("cy")
    tasks += await joins(group, "ann")
    await clock.advance(4.999)
    assert not tasks[0].done()  # and the deadline is the same
    await clock.advance(0.001)
    assert tasks[0].result() == Generation(2, ("ann", "bob"), ("cy",))
    assert group.members == ("ann", "bob")
    assert not group.leave("cy")


# while it is open


async def test_expect_open_does_not_close_it(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    generation = await formed(group, clock, "ann")
    group.expect("bob")
    await clock.advance(100.0)
    assert (group.is_closed, group.generation, group.members) == (False, generation, ("ann", "bob"))
    check_empty(group)


async def test_expect_open_is_waited_for_when_next_closed(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    group.expect("bob")
    (task,) = await joins(group, "ann")
    assert not task.done()
    assert (await group.join("bob")).members == ("ann", "bob")
    assert await task is group.generation


async def test_expect_open_joins_and_closes_it(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    group.expect("bob")
    (task,) = await joins(group, "bob")
    assert group.is_closed
    assert not task.done()
    assert await group.join("ann") == Generation(2, ("ann", "bob"), ())


async def test_expect_open_then_leave_stays_open(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    generation = await formed(group, clock, "ann")
    group.expect("bob")
    assert group.leave("bob")
    assert (group.is_closed, group.generation, group.members) == (False, generation, ("ann",))
    assert not group.leave("bob")
    assert group.leave("ann")
    assert group.generation.number == 1


async def test_expected_once_in_a_generation_is_a_member(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("ann")
    await formed(group, clock, "ann", "bob")
    assert group.leave("ann")
    assert group.is_closed


async def test_leave_of_the_last_waits_for_the_expected(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    group.expect("bob")
    group.leave("ann")
    assert group.is_closed
    assert await group.join("bob") == Generation(2, ("bob",), ())  # all are here: no delay


# in a group without members


async def test_expect_in_an_empty_group_waits_for_nothing(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("ann")
    await clock.advance(100.0)
    assert (group.members, group.generation.number) == (("ann",), 0)
    check_empty(group)
    assert group.leave("ann")
    check_empty(group)


async def test_expect_then_leave_leaves_the_group_empty(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("ann")
    group.leave("ann")
    (task,) = await joins(group, "bob")  # and so the delay is there
    await clock.advance(1.999)
    assert not task.done()
    await clock.advance(0.001)
    assert task.result().members == ("bob",)


async def test_expect_in_an_empty_group_keeps_the_initial_delay(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("ann")
    (task,) = await joins(group, "ann")
    await clock.advance(1.999)
    assert not task.done()
    await clock.advance(0.001)
    assert task.result() == Generation(1, ("ann",), ())


async def test_initial_delay_goes_on_while_expected_are_missing(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("bob")
    tasks = await joins(group, "ann")
    await clock.advance(5.0)
    assert not tasks[0].done()
    tasks += await joins(group, "bob")  # in the delay from 4 to 6 s, and so there is another one
    await clock.advance(2.999)
    assert not tasks[0].done()
    await clock.advance(0.001)
    assert tasks[0].result() == Generation(1, ("bob", "ann"), ())


async def test_initial_delay_drops_expected_at_the_deadline(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    tasks = await joins(group, "ann")
    group.expect("bob")
    await clock.advance(9.999)
    assert not tasks[0].done()
    await clock.advance(0.001)
    assert tasks[0].result() == Generation(1, ("ann",), ("bob",))
    check_empty(group)


async def test_initial_delay_goes_on_for_a_cancelled_join(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("bob")
    bob, ann = await joins(group, "bob", "ann")
    await clock.advance(3.0)
    bob.cancel()  # it is missing again
    await clock.advance(1.0)
    assert not ann.done()
    await joins(group, "bob")
    await clock.advance(4.0)
    assert ann.result().members == ("bob", "ann")


async def test_initial_delay_ends_once_the_expected_leaves(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    tasks = await joins(group, "ann")
    group.expect("bob")
    await clock.advance(3.0)
    group.leave("bob")
    await clock.advance(1.0)
    assert tasks[0].result() == Generation(1, ("ann",), ())


async def test_expect_without_initial_delay_is_waited_for(purgatory: Purgatory) -> None:
    group = group_in(purgatory, initial_delay=0)
    group.expect("bob")
    (task,) = await joins(group, "ann")
    assert not task.done()
    assert await group.join("bob") == Generation(1, ("bob", "ann"), ())
    assert await task is group.generation


# there already


async def test_expect_of_a_member_changes_nothing(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.expect("ann")
    assert group.members == ("ann", "bob")
    assert group.leave("ann")
    assert group.is_closed  # it was a member, and no newcomer
    group.expect("bob")
    assert await group.join("bob") == Generation(2, ("bob",), ())


async def test_expect_twice_is_once(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, expected=["ann", "bob"])
    for member in ("cy", "cy", "ann", "cy"):
        group.expect(member)
    tasks = await joins(group, "ann", "bob")
    assert not tasks[0].done()
    assert await group.join("cy") == Generation(1, ("ann", "bob", "cy"), ())


@pytest.mark.parametrize("before", [True, False])
async def test_join_cancelled_after_expect_is_still_expected(
    purgatory: Purgatory, clock: ManualClock, before: bool
) -> None:
    """Whether expect() came before the join or after: it is as if there had been no join."""
    group = group_in(purgatory)
    await formed(group, clock, "ann")
    if before:
        group.expect("bob")
    (bob,) = await joins(group, "bob")
    if not before:
        group.expect("bob")
    bob.cancel()
    check_invariants(purgatory)
    assert (group.members, group.is_waiting("bob")) == (("ann", "bob"), False)
    (ann,) = await joins(group, "ann")
    assert not ann.done()
    group.leave("bob")
    assert await ann == Generation(2, ("ann",), ())


async def test_joins_failed_after_expect_are_still_expected(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    group.expect("bob")
    tasks = await joins(group, "ann", "bob")
    purgatory.fail_for_key("billing", OSError("coordinator moved"))
    for task in tasks:
        with pytest.raises(OSError, match="coordinator moved"):
            await task
    assert group.members == ("bob",)
    check_empty(group)
    (task,) = await joins(group, "bob")  # the first: the delay is there again
    assert not task.done()
    await clock.advance(2.0)
    assert task.result() == Generation(1, ("bob",), ())


async def test_passed_but_cancelled_expected_member_leaves(purgatory: Purgatory) -> None:
    group = group_in(purgatory, expected=["ann"])
    group.expect("bob")
    bob, ann = await joins(group, "bob", "ann")
    bob.cancel()
    assert (await ann).members == ("ann", "bob")
    with pytest.raises(asyncio.CancelledError):
        await bob
    assert (group.is_closed, group.members) == (True, ("ann",))


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
        purgatory.fail_for_key("billing", OSError("coordinator moved"))
        at_end.do = lambda: group.leave("bob")
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], OSError)
        assert isinstance(found[1], (OSError, JoinError))
        assert (group.members, group.is_closed) == (("ann", "cy"), True)
        tasks = await joins(group, "ann", "cy")
        assert (await tasks[0]).members == ("ann", "cy")


async def test_leave_from_a_hook_while_its_join_is_cancelled_stays(clock: ManualClock) -> None:
    at_end = AtFirstEnd()
    async with Purgatory(clock=clock, observers=[at_end]) as purgatory:
        group = group_in(purgatory)
        await formed(group, clock, "ann", "bob")
        tasks = await joins(group, "ann")
        at_end.do = lambda: group.leave("ann")
        tasks[0].cancel()
        assert group.members == ("bob",)
        assert (await (await joins(group, "bob"))[0]).members == ("bob",)


@pytest.mark.parametrize("call", ["join", "leave"])
async def test_call_right_after_fail_for_key_saves_no_join(purgatory: Purgatory, clock: ManualClock, call: str) -> None:
    """It closes the next barrier in the very iteration in which the joins at this one are to fail."""
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob", "cy")
    tasks = await joins(group, "ann", "bob")
    again: list[Join] = []
    if call == "join":
        again.append(asyncio.create_task(group.join("cy")))  # its turn comes before the callback's
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
    found: list[BaseException] = []

    def call() -> None:
        for method, member in ((group.expect, "dan"), (group.leave, "cy"), (group.leave, "bob")):
            try:
                method(member)
            except RuntimeError as exc:
                found.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(found) == 3
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


async def test_group_full_lets_known_members_join(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory, max_members=3)
    await formed(group, clock, "ann", "bob")
    group.expect("cy")
    with pytest.raises(GroupFullError):
        await group.join("dan")
    group.expect("cy")
    tasks = await joins(group, "ann", "ann", "cy", "bob")
    assert (await tasks[1]).members == ("ann", "bob", "cy")
    with pytest.raises(JoinError):
        await tasks[0]


@pytest.mark.parametrize("how", ["leave", "drop", "cancel"])
async def test_group_full_has_room_again(purgatory: Purgatory, clock: ManualClock, how: str) -> None:
    group = group_in(purgatory, max_members=2)
    await formed(group, clock, "ann")
    tasks = await joins(group, "bob")
    if how == "leave":
        group.leave("bob")
    elif how == "drop":
        await clock.advance(10.0)
    else:
        tasks[0].cancel()
    (task,) = await joins(group, "cy")
    assert "cy" in group.members
    await asyncio.gather(*tasks, return_exceptions=True)
    task.cancel()


async def test_group_full_is_no_join_error() -> None:
    """After a JoinError a member joins again; after this, it would be refused each time."""
    assert not issubclass(GroupFullError, (JoinError, PurgatoryFullError))


async def test_expected_members_beyond_the_largest_group_stay(purgatory: Purgatory) -> None:
    """A group that was restored after the setting was made smaller."""
    group = group_in(purgatory, expected=["ann", "bob", "cy"], max_members=1)
    with pytest.raises(GroupFullError):
        await group.join("dan")
    tasks = await joins(group, "ann", "bob", "cy")
    assert (await tasks[0]).members == ("ann", "bob", "cy")


@pytest.mark.parametrize(
    ("most", "error", "message"),
    [
        (0, ValueError, "max_members must be >= 1, got 0"),
        (1.5, TypeError, "max_members must be an int, got 1.5"),
        (True, TypeError, "max_members must be an int, got True"),
    ],
)
async def test_max_members_that_is_bad_is_refused(
    purgatory: Purgatory, most: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        group_in(purgatory, max_members=most)


async def test_unhashable_member_is_not_expected(purgatory: Purgatory) -> None:
    group = group_in(purgatory, max_members=1)
    with pytest.raises(TypeError, match="unhashable"):
        group.expect([])  # type: ignore[arg-type]
    assert group.members == ()


# the rebalance timeout


async def test_rebalance_timeout_set_counts_from_the_next_close(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.rebalance_timeout = 3.0
    (task,) = await joins(group, "ann")
    group.rebalance_timeout = 60.0  # too late for this one
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


async def test_rebalance_timeout_set_counts_for_leave(purgatory: Purgatory, clock: ManualClock) -> None:
    group = group_in(purgatory)
    await formed(group, clock, "ann", "bob")
    group.rebalance_timeout = None
    group.leave("ann")
    await clock.advance(1e6)
    assert group.is_closed
    assert group.rebalance_timeout is None


async def test_rebalance_timeout_set_badly_is_refused(purgatory: Purgatory) -> None:
    group = group_in(purgatory)
    for value, error in ((-1.0, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="rebalance_timeout must be"):
            group.rebalance_timeout = value  # type: ignore[assignment]
    assert group.rebalance_timeout == 10.0


# against a naive group


class NaiveGroup:
    """The same rules over plain sets: it visits all members after each step."""

    def __init__(self) -> None:
        self.standing: set[str] = set()
        self.expected: set[str] = set()
        self.joined: set[str] = set()
        self.deadline: float | None = None
        self.last: tuple[int, set[str], set[str]] = (0, set(), set())
        self.now = 0.0

    @property
    def members(self) -> set[str]:
        return self.standing | self.expected | self.joined

    def close(self) -> None:
        if self.deadline is None:
            self.deadline = self.now + 10.0

    def settle(self) -> None:
        if self.deadline is not None and (self.members <= self.joined or self.now >= self.deadline):
            self.last = (self.last[0] + bool(self.joined), set(self.joined), self.members - self.joined)
            self.standing, self.expected, self.joined, self.deadline = self.joined, set(), set(), None

    def join(self, member: str) -> None:
        self.joined.add(member)
        self.close()

    def expect(self, member: str) -> None:
        self.expected |= {member} - self.standing

    def leave(self, member: str) -> bool:
        found = member in self.members
        if found and (member in self.standing or member not in self.expected):
            self.close()
        for members in (self.standing, self.expected, self.joined):
            members.discard(member)
        return found


@pytest.mark.parametrize("seed", range(6))
async def test_random_steps_agree_with_a_naive_group(purgatory: Purgatory, clock: ManualClock, seed: int) -> None:
    random_ = random.Random(seed)
    group, naive = group_in(purgatory, initial_delay=0, max_members=5), NaiveGroup()
    tasks: dict[str, Join] = {}
    ended: list[Join] = []
    for _ in range(400):
        step = random_.choices(["join", "expect", "leave", "cancel", "time"], [50, 15, 12, 15, 8])[0]
        member = random_.choice("abcdefg")
        full = member not in naive.members and len(naive.members) == 5
        if step == "join":
            ended += [tasks[member]] if member in tasks else []
            tasks[member] = asyncio.create_task(group.join(member))
            await asyncio.sleep(0)
            if not full:
                naive.join(member)
        elif step == "expect" and full:
            with pytest.raises(GroupFullError):
                group.expect(member)
        elif step == "expect":
            group.expect(member)
            naive.expect(member)
        elif step == "leave":
            assert group.leave(member) == naive.leave(member)
        elif step == "cancel" and member in naive.joined:
            tasks[member].cancel()
            naive.joined.remove(member)
        elif step == "time":
            await clock.advance(4.0)
            naive.now += 4.0
        naive.settle()
        for _ in range(3):
            await asyncio.sleep(0)
        check_agreement(group, naive)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*ended, *tasks.values(), return_exceptions=True)
    assert naive.last[0] > 10


def check_agreement(group: JoinBarrier[str], naive: NaiveGroup) -> None:
    check_invariants(group.purgatory)
    assert set(group.members) == naive.members
    assert {member for member in group.members if group.is_waiting(member)} == naive.joined
    assert group.is_closed == (naive.deadline is not None)
    number, members, dropped = naive.last
    generation = group.generation
    assert (generation.number, set(generation.members), set(generation.dropped)) == (number, members, dropped)
    assert group.purgatory.num_delayed == len(naive.joined) + group.is_closed
