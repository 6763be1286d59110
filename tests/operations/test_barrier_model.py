"""Random steps of a group agree with a naive one, which visits every member after each step."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from aiopurgatory import Purgatory
from aiopurgatory.operations import Generation, GroupFullError, JoinBarrier, JoinError
from aiopurgatory.testing import ManualClock, check_invariants

from .helpers import Join, group_in

MOST = 5
TIMEOUT = 10.0


@dataclass
class NaiveGroup:
    """The same rules over plain sets."""

    initial_delay: float
    now: float = 0.0
    #: In the order of their arrival.
    members: list[str] = field(default_factory=list)
    #: Members of the last generation, announced ones, and the ones that wait at the barrier.
    standing: set[str] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    #: While it is closed, when it opens or begins another initial delay, and when it opens at the latest.
    ends_at: float | None = None
    deadline: float = 0.0
    #: Members that had joined when the initial delay began; None: there is none.
    seen: set[str] | None = None
    last: tuple[int, tuple[str, ...], tuple[str, ...]] = (0, (), ())

    def close(self, is_first: bool = False) -> None:
        if self.ends_at is None:
            self.deadline = self.now + TIMEOUT
            self.seen = set(self.joined) if is_first and self.initial_delay else None
            self.ends_at = self.deadline if self.seen is None else self.now + self.initial_delay

    def fail(self) -> None:
        """The joins at the barrier end with an error: as if they had not come."""
        self.members = [member for member in self.members if member in self.standing | self.announced]
        self.joined, self.ends_at = set(), None

    def settle(self) -> bool:
        """Open it if it is time. Returns: whether it has opened."""
        if self.ends_at is None:
            return False
        is_complete = set(self.members) <= self.joined
        if self.seen is not None:
            if self.now < self.ends_at:
                return False
            if self.now < self.deadline and not (is_complete and self.seen >= set(self.members)):
                self.seen = set(self.joined)
                self.ends_at = min(self.now + self.initial_delay, self.deadline)
                return False
        elif not is_complete and self.now < self.ends_at:
            return False
        stay = tuple(member for member in self.members if member in self.joined)
        dropped = tuple(member for member in self.members if member not in self.joined)
        self.last = (self.last[0] + bool(stay), stay, dropped)
        self.members, self.standing, self.announced, self.joined = list(stay), set(stay), set(), set()
        self.ends_at = None
        return True

    def join(self, member: str) -> None:
        is_first = set(self.members) == self.announced
        self.joined.add(member)
        self.members += [member] if member not in self.members else []
        self.close(is_first)

    def expect(self, member: str) -> None:
        self.members += [member] if member not in self.members else []
        self.announced |= {member} - self.standing

    def cancel(self, member: str) -> None:
        self.joined.remove(member)
        if member not in self.standing | self.announced:
            self.members.remove(member)

    def leave(self, member: str) -> bool:
        if member not in self.members:
            return False
        if member not in self.announced:
            self.close()
        self.members.remove(member)
        for each in (self.standing, self.announced, self.joined):
            each.discard(member)
        return True

    def replace(self, member: str, successor: str) -> bool:
        if member not in self.members:
            return False
        self.members[self.members.index(member)] = successor
        (self.announced if member in self.announced else self.standing).add(successor)
        for each in (self.standing, self.announced, self.joined):
            each.discard(member)
        number, members, dropped = self.last
        self.last = (number, tuple(successor if each == member else each for each in members), dropped)
        return True


@dataclass
class Both:
    """A group and the naive one, which take the same steps."""

    group: JoinBarrier[str]
    naive: NaiveGroup
    clock: ManualClock
    tasks: dict[str, Join] = field(default_factory=dict)
    #: Joins that fail in this step, each with a word of its error; and how many have failed so far.
    failing: list[tuple[Join, str]] = field(default_factory=list)
    failed: int = 0

    def is_full(self, member: str) -> bool:
        return member not in self.naive.members and len(self.naive.members) == MOST

    async def join(self, member: str) -> None:
        task = asyncio.create_task(self.group.join(member))
        await asyncio.sleep(0)
        if self.is_full(member):
            assert isinstance(task.exception(), GroupFullError)
            return
        self.fails(member, "rejoined")
        self.tasks[member] = task
        self.naive.join(member)

    def fails(self, member: str, how: str) -> None:
        if member in self.naive.joined:
            self.failing.append((self.tasks.pop(member), how))

    def expect(self, member: str) -> None:
        if self.is_full(member):
            with pytest.raises(GroupFullError):
                self.group.expect(member)
        else:
            self.group.expect(member)
            self.naive.expect(member)

    def leave(self, member: str) -> None:
        self.fails(member, "left")
        assert self.group.leave(member) == self.naive.leave(member)

    def replace(self, member: str, successor: str) -> None:
        if successor in self.naive.members:
            with pytest.raises(ValueError, match="successor must be no member"):
                self.group.replace(member, successor)
        else:
            self.fails(member, "replaced")
            assert self.group.replace(member, successor) == self.naive.replace(member, successor)

    def cancel(self, member: str) -> None:
        if member in self.naive.joined:
            self.tasks.pop(member).cancel()
            self.naive.cancel(member)

    def end_for_key(self, is_cancelled: bool) -> None:
        for member in sorted(self.naive.joined):
            self.fails(member, "" if is_cancelled else "moved")
        purgatory, key = self.group.purgatory, self.group.key
        purgatory.cancel_for_key(key) if is_cancelled else purgatory.fail_for_key(key, JoinError("moved"))
        self.naive.fail()

    async def advance(self) -> None:
        """To the next moment at which something happens, if there is one within a second."""
        ends_at = self.naive.ends_at
        to = self.naive.now + 1.0 if ends_at is None else min(self.naive.now + 1.0, ends_at)
        await self.clock.advance(to - self.naive.now)
        self.naive.now = to

    async def check(self) -> None:
        waiting = {member: self.tasks[member] for member in self.naive.joined}
        has_opened = self.naive.settle()
        for _ in range(3):
            await asyncio.sleep(0)
        if has_opened:
            assert all(task.result() is self.group.generation for task in waiting.values())
        else:
            assert not any(task.done() for task in waiting.values())
        for task, how in self.failing:
            with pytest.raises(JoinError if how else asyncio.CancelledError, match=how or None):
                task.result()
        self.failed += len(self.failing)
        self.failing.clear()
        check_invariants(self.group.purgatory)
        assert self.group.members == tuple(self.naive.members)
        assert {member for member in self.naive.members if self.group.is_waiting(member)} == self.naive.joined
        assert self.group.is_closed == (self.naive.ends_at is not None)
        assert self.group.generation == Generation(*self.naive.last)
        assert len(self.group) == len(self.naive.joined)
        assert self.group.purgatory.num_delayed == len(self.naive.joined) + self.group.is_closed


STEPS = {"join": 45, "expect": 12, "leave": 12, "cancel": 12, "replace": 8, "advance": 30, "end": 4}


@pytest.mark.parametrize("initial_delay", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(6))
async def test_random_steps_agree_with_a_naive_group(
    purgatory: Purgatory, clock: ManualClock, seed: int, initial_delay: float
) -> None:
    chosen = random.Random(seed)
    group = group_in(purgatory, rebalance_timeout=TIMEOUT, initial_delay=initial_delay, max_members=MOST)
    both = Both(group, NaiveGroup(initial_delay), clock)
    for _ in range(600):
        step = chosen.choices(list(STEPS), list(STEPS.values()))[0]
        member, other = chosen.sample("abcdefg", 2)
        if step == "join":
            await both.join(member)
        elif step == "expect":
            both.expect(member)
        elif step == "leave":
            both.leave(member)
        elif step == "cancel":
            both.cancel(member)
        elif step == "replace":
            both.replace(member, other)
        elif step == "end":
            both.end_for_key(chosen.random() < 0.5)
        else:
            await both.advance()
        await both.check()
        if chosen.random() < 0.02:  # so that it is empty now and then
            for each in group.members:
                both.leave(each)
                await both.check()
    assert both.naive.last[0] > 10
    assert both.failed > 20
    for task in both.tasks.values():
        task.cancel()
    await asyncio.gather(*both.tasks.values(), return_exceptions=True)
