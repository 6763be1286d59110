"""The barrier at which the members of a group wait for each other."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from math import inf
from typing import Any, Generic, TypeVar

from ..arguments import Items, described, require, require_int, require_items, require_seconds
from ..core.kit import Outcome, core_of
from ..delayed_operation import DelayedOperation
from ..errors import PurgatoryClosedError
from ..purgatory import Purgatory
from .members import Generation, GroupFullError, JoinError, Members
from .thresholds import Collection

M = TypeVar("M", bound=Hashable)


class JoinBarrier(Collection, Generic[M]):
    """A group of members that wait for each other, again and again.

        async with Purgatory("rebalance") as purgatory:
            group = JoinBarrier[str](purgatory, "billing", rebalance_timeout=5.0, initial_delay=0.05)
            ann, bob = await asyncio.gather(group.join("ann"), group.join("bob"))
            assert ann is bob
            assert (ann.number, ann.members) == (1, ("ann", "bob"))

            joins = [asyncio.create_task(group.join(member)) for member in ("cy", "bob")]  # cy is new
            await asyncio.sleep(0)
            assert group.is_closed  # until ann joins; her next heartbeat can tell her
            group.leave("ann")
            assert (await joins[0]).members == ("bob", "cy")  # bob has been there for longer

    In a group with members, the first join and every leave close the barrier: every member must then join again. The
    barrier opens when all have joined, or at its deadline, which drops the members that have not joined. The first
    join of an empty group waits for ``initial_delay``, repeated while members join.

    Call expect() for a member that has been given its name but has not joined yet: the barrier also waits for it. Call
    replace() for one that has restarted under another name: the others need not join again. ``len()`` counts the
    members that wait at the barrier.

    ``purgatory.cancel_for_key(key)`` cancels every waiting join. ``fail_for_key(key, exc)`` fails each with *exc*, for
    instance when another server has taken over the group. ``complete_for_key(key)`` opens the barrier now, as its
    deadline does, even during the initial delay.

    Args:
        purgatory: holds the joins.
        key: the watch key of the barrier.
        rebalance_timeout: seconds, >= 0, that the barrier stays closed at most. None: until all members have joined.
        initial_delay: seconds, >= 0, that the first join of an empty group waits for others. Repeated while members
            join or are missing, for *rebalance_timeout* in all. 0 (default): no delay.
        expected: the members to wait for the first time. With any, there is no initial delay.
        max_members: the largest group, >= 1. A new member beyond it is refused with GroupFullError; known ones may
            always join again, and *expected* may hold more. None (default): no limit.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.
    Cost: a join, as watch(); opening the barrier, O(members).
    """

    # Source: Kafka DelayedJoin, InitialDelayedJoin, GroupCoordinator (KIP-134, KIP-389); differs: counts the missing.

    __slots__ = (
        "_barrier",
        "_generation",
        "_initial_delay",
        "_max_members",
        "_members",
        "_rebalance_timeout",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        rebalance_timeout: float | None,
        initial_delay: float = 0.0,
        expected: Items[M] = (),
        max_members: int | None = None,
    ) -> None:
        super().__init__(purgatory, key)
        self.rebalance_timeout = rebalance_timeout
        if max_members is not None:
            require_int("max_members", max_members, 1)
        require_items("expected", expected, "member")
        self._members: Members[M, MemberJoin[M]] = Members(expected)
        self._initial_delay = require_seconds("initial_delay", initial_delay)
        self._max_members = max_members
        self._generation: Generation[M] = Generation(0, (), ())
        self._barrier: DelayedJoin | None = None  # while it is closed

    def __repr__(self) -> str:
        state = f"closed, {self._members.missing} missing" if self.is_closed else "open"
        counts = f"generation={self._generation.number} members={len(self._members)}"
        return f"<JoinBarrier {described(self._key)} {counts} {state}>"

    def __len__(self) -> int:
        return len(self._members.joins())

    @property
    def generation(self) -> Generation[M]:
        """The latest generation. Before the first, number 0 without members."""
        return self._generation

    @property
    def rebalance_timeout(self) -> float | None:
        """Seconds, >= 0, that a barrier stays closed at most. None: until all members have joined.

        It may be set at any time, for instance to the largest timeout of the members. The barrier uses it when it next
        closes: set it before the join or leave that closes it.

        Raises: TypeError, ValueError: it is set to another type, a negative number or NaN.
        """
        return self._rebalance_timeout

    @rebalance_timeout.setter
    def rebalance_timeout(self, rebalance_timeout: float | None) -> None:
        if rebalance_timeout is not None:
            require_seconds("rebalance_timeout", rebalance_timeout)
        self._rebalance_timeout = rebalance_timeout

    @property
    def members(self) -> tuple[M, ...]:
        """The members of the group, joined or not."""
        return tuple(self._members)

    @property
    def is_closed(self) -> bool:
        """True while it waits for members to join. All members should join then."""
        return self._barrier is not None and not self._barrier.done()

    def is_waiting(self, member: M) -> bool:
        """Return True if *member* has joined and is waiting for the others."""
        return self._members.has_joined(member)

    async def join(self, member: M) -> Generation[M]:
        """Wait at the barrier until it opens.

        If the join is cancelled, it is as if *member* had not joined.

        Returns: its generation, the same object for all members.

        Raises:
            JoinError: *member* left meanwhile, joined again or was replaced.
            GroupFullError: *member* is new, and the group has max_members.
            TypeError: *member* is not hashable.
            Exception: raised by watch() of the purgatory.
        """
        return await self._watch(member)

    def expect(self, member: M) -> None:
        """Announce *member*, which has been given its name but has not joined yet. No effect if it is a member.

        A closed barrier then waits for *member* until it joins or leaves, or the deadline drops it. An open barrier
        stays open, and waits for *member* when it next closes. In a group that has only such members, the first join
        closes the barrier and begins the initial delay.

        Cancelling its join leaves *member* expected. If it is not going to join, call leave(): while the barrier is
        open, nothing else removes it.

        Raises: GroupFullError: the group is full. TypeError: *member* is not hashable. RuntimeError: wrong thread.
        Cost: O(1).
        """
        # Source: Kafka's pending members (KIP-394); differs: the deadline drops them, the initial delay waits for them.
        self._admit(member)
        self._members.expect(member)

    def leave(self, member: M) -> bool:
        """Remove *member*. The others must join again, unless expect() announced it and it has been in no generation.

        Returns: False if it is not a member.
        Raises: PurgatoryFullError: the barrier cannot be closed; *member* stays. RuntimeError: wrong thread or loop.
        """
        self._check_thread()
        if member not in self._members:
            return False
        if not self.is_closed and not self._members.is_announced(member):
            with suppress(PurgatoryClosedError):
                self._close()
        self._fail_join(self._members.remove(member), member, "has left")
        self._purgatory.check_and_complete(self._key)
        return True

    def replace(self, member: M, successor: M) -> bool:
        """Let *successor* take the place of *member*, for instance a process that has restarted under another name.

        It has the same place in the order, and in the latest ``generation``, whose number stays. An open barrier stays
        open: nobody must join again, and *successor* need not join at all. A closed one waits for *successor* in place
        of *member*, whose own join raises JoinError.

        Returns: False if *member* is not a member.

        Raises:
            ValueError: *successor* is a member already.
            TypeError: *successor* is not hashable.
            RuntimeError: wrong thread.

        Cost: O(members).
        """
        # Source: Kafka GroupMetadata.replaceStaticMember (KIP-345).
        self._check_thread()
        require(successor not in self._members, "successor", f"no member of {described(self._key)} yet", successor)
        if member not in self._members:
            return False
        # atomic: no await
        join = self._members.replace(member, successor)
        self._generation = self._generation.replace(member, successor)
        self._fail_join(join, member, f"was replaced by {described(successor)} in")
        return True

    def _watch(self, member: M) -> MemberJoin[M]:
        self._admit(member)
        join = self._purgatory.watch(MemberJoin(self, member), [("join", self._key, member)])
        # atomic: no await
        self._fail_join(self._members.add(member, join), member, "has rejoined")
        if self.is_closed:
            self._purgatory.check_and_complete(self._key)
            return join
        try:
            self._close()
        except BaseException:
            join.cancel()
            raise
        return join

    def _fail_join(self, join: MemberJoin[M] | None, member: M, why: str) -> None:
        """Fail the *join* of *member*, if it has one."""
        if join is not None:
            join.fail(JoinError(f"{described(member)} {why} {described(self._key)}"))

    def _check_thread(self) -> None:
        core_of(self._purgatory).loop.check_thread()

    def _admit(self, member: M) -> None:
        """Raises: GroupFullError: *member* is new, and the group has max_members. RuntimeError: wrong thread."""
        self._check_thread()
        count, most = len(self._members), self._max_members
        if member not in self._members and most is not None and count >= most:
            raise GroupFullError(
                f"{described(member)} cannot join {described(self._key)}: {count} members (max_members={most})"
            )

    # the barrier

    def _close(self) -> None:
        timeout = self._rebalance_timeout
        if self._initial_delay == 0 or not self._members.is_new:
            barrier = DelayedJoin(self, timeout)
        else:
            barrier = InitialDelayedJoin(self, self._initial_delay, inf if timeout is None else timeout)
        self._barrier = barrier
        try:
            self._purgatory.watch(barrier, [self._key])
        except BaseException:
            self._barrier = None
            raise

    def _open(self) -> None:
        """Begin a generation of the members that have joined."""
        # atomic: no await
        barrier, self._barrier = self._barrier, None
        joins = self._members.joins()
        self._generation = self._members.begin(self._generation)
        for join in joins:
            join.pass_on(self._generation)
        if barrier is not None:
            barrier.force_complete()  # unless that is what opens it

    def _give_up(self, barrier: DelayedJoin, exc: BaseException | None) -> None:
        """Fail every join with *exc*, or cancel it."""
        if self._barrier is barrier:  # else a hook has closed the next one
            self._barrier = None
        for join in self._members.joins():
            join.fail(exc) if isinstance(exc, Exception) else join.cancel()


class DelayedJoin(DelayedOperation[None]):
    """The closed barrier: opens when every expected member has joined, or at the deadline."""

    __slots__ = ("_group",)

    def __init__(self, group: JoinBarrier[Any], timeout: float | None) -> None:
        super().__init__(timeout)
        self._group = group

    def try_complete(self) -> bool:
        return not self._group._members.missing and self.force_complete()

    def on_complete(self) -> None:
        if self._group._barrier is self:  # else it has been opened by a join
            self._group._open()

    def on_cancel(self) -> None:
        self._group._give_up(self, None)

    def on_failure(self, exc: BaseException) -> None:
        self.exception()  # the joins raise it
        self._group._give_up(self, exc)


class InitialDelayedJoin(DelayedJoin):
    """The barrier of an empty group: a delay, repeated if a member joined during it or is missing."""

    __slots__ = ("_delay", "_remaining", "_seen")

    def __init__(self, group: JoinBarrier[Any], delay: float, remaining: float) -> None:
        super().__init__(group, min(delay, remaining))
        self._delay = delay
        self._remaining = remaining
        self._seen = group._members.joined()

    def try_complete(self) -> bool:
        members = self._group._members
        if self.is_due:
            self._remaining -= self._delay
            if self._remaining > 0 and (members.missing or not self._seen.issuperset(members)):
                self._seen = members.joined()
                self._group._purgatory.reschedule(self, min(self._delay, self._remaining))
        return False


class MemberJoin(DelayedOperation[Generation[M]]):
    """One member at the barrier. It has no deadline: the barrier has one."""

    __slots__ = ("_generation", "_group", "member")

    def __init__(self, group: JoinBarrier[M], member: M) -> None:
        super().__init__(None)
        self._group = group
        self._generation: Generation[M] | None = None
        self.member = member

    def pass_on(self, generation: Generation[M]) -> None:
        self._generation = generation
        self.force_complete()

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> Generation[M]:
        if self._generation is None:  # by expire_all(), before the barrier
            self._group._open()
        assert self._generation is not None
        return self._generation

    def on_end(self, outcome: Outcome) -> None:
        self._group._members.withdraw(self.member, self)

    def on_undelivered(self, result: Generation[M]) -> None:
        # The others must not rely on it.
        if self._group._generation.number == result.number and not self._group.is_waiting(self.member):
            self._group.leave(self.member)
