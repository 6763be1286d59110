"""The join-group barrier: members wait for each other, then continue together as a generation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar, final

from ..arguments import require_int, require_seconds
from ..core.outcome import Outcome
from ..core.purgatory import parts_of
from ..errors import PurgatoryClosedError, PurgatoryError
from ..operation import DelayedOperation
from ..purgatory import Purgatory

M = TypeVar("M", bound=Hashable)


class JoinError(PurgatoryError):
    """The join ended without a generation: its member left, or joined again meanwhile."""


# Not a JoinError: after one of those a member may join again at once; after this it would be refused again.
class GroupFullError(PurgatoryError):
    """A new member was refused because the group already has ``max_members``. The group is unchanged."""


@final
@dataclass(frozen=True, slots=True)
class Generation(Generic[M]):
    """The members that continue together.

    Args:
        number: 1 for the first generation. Each change of the group makes a new one.
        members: the longest-standing first. That one changes only when it leaves, so it may lead the group.
        dropped: members that were expected and did not join in time.
    """

    number: int
    members: tuple[M, ...]
    dropped: tuple[M, ...]


class DelayedJoin(DelayedOperation[None]):
    """The closed barrier: opens when every expected member has joined, or at the deadline."""

    __slots__ = ("_group",)

    def __init__(self, group: JoinBarrier[Any], timeout: float | None) -> None:
        super().__init__(timeout)
        self._group = group

    def try_complete(self) -> bool:
        return not self._group._missing and self.force_complete()

    def on_complete(self) -> None:
        if self._group._barrier is self:
            self._group._open()

    def on_cancel(self) -> None:
        if self._group._barrier is self:
            self._group._give_up()


class InitialDelayedJoin(DelayedJoin):
    """The barrier of an empty group: a delay, repeated if a member joined during it or is missing."""

    __slots__ = ("_remaining", "_seen")

    def __init__(self, group: JoinBarrier[Any], remaining: float) -> None:
        delay = min(group.initial_delay, remaining)
        super().__init__(group, delay)
        self._remaining = remaining - delay
        self._seen = frozenset(filter(group.is_waiting, group.members))

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        # In one step, so that no join can come between this barrier and the next.
        group = self._group
        goes_on = self._remaining > 0 and (group._missing > 0 or not self._seen.issuperset(group.members))
        if group._barrier is self and goes_on:
            group._close(InitialDelayedJoin(group, self._remaining))
        else:
            super().on_complete()


class MemberJoin(DelayedOperation[Generation[M]]):
    """One member at the barrier. It has no deadline: the barrier has one."""

    __slots__ = ("_generation", "_group", "known", "member")

    def __init__(self, group: JoinBarrier[M], member: M) -> None:
        super().__init__(None)
        self._group = group
        self._generation: Generation[M] | None = None
        self.member = member
        self.known = False  # it was expected, and still is if its join is cancelled

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

    def on_cancel(self) -> None:
        self._group._withdraw(self)

    def on_failure(self, exc: BaseException) -> None:
        self._group._withdraw(self)

    def on_undelivered(self, result: Generation[M]) -> None:
        # It is in the generation, but its task was cancelled before it learned that. The others must not rely on it.
        if self._group.generation is result and not self._group.is_waiting(self.member):
            self._group.leave(self.member)


class JoinBarrier(Generic[M]):
    """A group whose members wait for each other, again and again.

        async with Purgatory("rebalance") as purgatory:
            group = JoinBarrier[str](purgatory, "billing", rebalance_timeout=5.0, initial_delay=0.05)
            ann, bob = await asyncio.gather(group.join("ann"), group.join("bob"))
            assert ann is bob
            assert (ann.number, ann.members) == (1, ("ann", "bob"))

            joins = [asyncio.create_task(group.join(member)) for member in ("cy", "bob")]  # cy is new
            await asyncio.sleep(0)
            assert group.is_closed  # it waits for ann, who learns this from her next heartbeat, for instance
            group.leave("ann")
            assert (await joins[0]).members == ("bob", "cy")  # bob has been there for longer

    In a group with members, the first join and every leave close the barrier: every member must then join again. The
    barrier opens when all have joined, or at its deadline, which drops the members that have not joined. The first
    join of an empty group waits for ``initial_delay``, repeated while members join.

    Call expect() for a member that has been given its name but has not joined yet: the barrier waits for it, too.

    ``purgatory.cancel_for_key(key)`` cancels every waiting join. ``fail_for_key(key, exc)`` fails each with *exc* on
    the next loop iteration, for instance when another server has taken over the group.

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
    Cost: a join, that of watch(); opening the barrier, O(members).

    Source: Kafka DelayedJoin, InitialDelayedJoin, GroupCoordinator (KIP-134, KIP-389); differs: counts the missing.
    """

    __slots__ = (
        "_barrier",
        "_generation",
        "_members",
        "_missing",
        "_pending",
        "_rebalance_timeout",
        "initial_delay",
        "key",
        "max_members",
        "purgatory",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        rebalance_timeout: float | None,
        initial_delay: float = 0.0,
        expected: Iterable[M] = (),
        max_members: int | None = None,
    ) -> None:
        self.rebalance_timeout = rebalance_timeout
        require_seconds("initial_delay", initial_delay)
        if max_members is not None:
            require_int("max_members", max_members, 1)
        if isinstance(expected, (str, bytes)):
            raise TypeError(f"expected must be an iterable of members, got the one member {expected!r}; pass [member]")
        hash(key)
        self.purgatory = purgatory
        self.key = key
        self.initial_delay = initial_delay
        self.max_members = max_members
        self._generation: Generation[M] = Generation(0, (), ())
        self._barrier: DelayedJoin | None = None  # while it is closed
        self._members: dict[M, MemberJoin[M] | None] = dict.fromkeys(expected)  # None: not joined yet
        self._missing = len(self._members)  # how many have not joined; all of them while the barrier is open
        self._pending: set[M] = set()  # announced by expect() and in no generation yet

    def __repr__(self) -> str:
        state = f"closed, {self._missing} missing" if self.is_closed else "open"
        return f"<JoinBarrier {self.key!r} generation={self._generation.number} members={len(self._members)} {state}>"

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
        """The members of the group, including those that have not joined yet."""
        return tuple(self._members)

    @property
    def is_closed(self) -> bool:
        """True while it waits for members to join. All members should join then."""
        return self._barrier is not None and not self._barrier.done()

    def is_waiting(self, member: M) -> bool:
        """Return True if *member* has joined and is waiting for the others."""
        return self._members.get(member) is not None

    async def join(self, member: M) -> Generation[M]:
        """Wait at the barrier until it opens.

        If the join is cancelled, it is as if *member* had not joined.

        Returns: its generation, the same object for all members.

        Raises:
            JoinError: *member* left meanwhile, or joined again.
            GroupFullError: *member* is new, and the group has max_members.
            Exception: what watch() of the purgatory raises; TypeError if *member* is not hashable.
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
        Source: Kafka's pending members (KIP-394); differs: the deadline drops them, the initial delay waits for them.
        """
        self._admit(member)
        # atomic: no await
        if member not in self._members:
            self._members[member] = None
            self._missing += 1
            self._pending.add(member)
            return
        join = self._members[member]
        if join is not None and not join.known:
            join.known = True
            self._pending.add(member)

    def leave(self, member: M) -> bool:
        """Remove *member*. The others must join again, unless expect() announced it and it has been in no generation.

        Returns: False if it is not a member.
        Raises: PurgatoryFullError: the barrier cannot be closed; *member* stays. RuntimeError: wrong thread or loop.
        """
        self._catch_up()
        if member not in self._members:
            return False
        if not self.is_closed and member not in self._pending:
            with suppress(PurgatoryClosedError):
                self._close(DelayedJoin(self, self.rebalance_timeout))
        # atomic: no await
        join = self._members.pop(member)
        self._pending.discard(member)
        if join is None:
            self._missing -= 1
        else:
            join.fail(JoinError(f"{member!r} has left {self.key!r}"))
        self.purgatory.check_and_complete(self.key)
        return True

    def _watch(self, member: M) -> MemberJoin[M]:
        self._admit(member)
        join = self.purgatory.watch(MemberJoin(self, member), [("join", self.key, member)])
        # atomic: no await
        is_first = len(self._members) == len(self._pending)
        earlier = self._members.get(member)
        join.known = member in self._members if earlier is None else earlier.known
        self._missing -= join.known and earlier is None
        self._members[member] = join
        if earlier is not None:
            earlier.fail(JoinError(f"{member!r} has joined {self.key!r} again"))
        if self.is_closed:
            self.purgatory.check_and_complete(self.key)
            return join
        try:
            self._close(self._barrier_of_nobody() if is_first else DelayedJoin(self, self.rebalance_timeout))
        except BaseException:
            join.cancel()
            raise
        return join

    def _catch_up(self) -> None:
        """Apply a failure of the barrier now. Raises: RuntimeError: called from another thread."""
        parts_of(self.purgatory).loop.check_thread()
        self._pass_on_failure()

    def _admit(self, member: M) -> None:
        """Raises: GroupFullError: *member* is new, and the group has max_members. RuntimeError: as _catch_up()."""
        self._catch_up()
        count, most = len(self._members), self.max_members
        if member not in self._members and most is not None and count >= most:
            raise GroupFullError(f"{member!r} cannot join {self.key!r}: {count} members (max_members={most})")

    def _barrier_of_nobody(self) -> DelayedJoin:
        if self.initial_delay == 0:
            return DelayedJoin(self, self.rebalance_timeout)
        return InitialDelayedJoin(self, inf if self.rebalance_timeout is None else self.rebalance_timeout)

    def _close(self, barrier: DelayedJoin) -> None:
        self._barrier = barrier
        try:
            self.purgatory.watch(barrier, [self.key])
        except BaseException:
            self._barrier = None
            raise
        barrier.add_done_callback(self._pass_on_failure)

    def _open(self) -> None:
        """Begin a generation of the members that have joined."""
        # atomic: no await
        self._barrier = None
        joins = [join for join in self._members.values() if join is not None]
        members = tuple(join.member for join in joins)
        dropped = tuple(member for member, join in self._members.items() if join is None)
        self._members = dict.fromkeys(members)
        self._missing = len(members)
        self._pending.clear()
        self._generation = Generation(self._generation.number + bool(members), members, dropped)
        for join in joins:
            join.pass_on(self._generation)

    def _give_up(self) -> None:
        """The barrier was cancelled: cancel every join."""
        self._barrier = None
        for join in filter(None, list(self._members.values())):
            join.cancel()

    def _pass_on_failure(self, _: object = None) -> None:
        """Fail every join if the barrier has failed: on the next loop iteration, or before another barrier closes."""
        barrier = self._barrier
        if barrier is None or barrier.outcome is not Outcome.FAILED:
            return
        exc = barrier.exception()
        assert isinstance(exc, Exception)
        # atomic: no await
        self._barrier = None
        joins = [join for join in self._members.values() if join is not None]
        for join in joins:
            self._withdraw(join)
        for join in joins:
            join.fail(exc)

    def _withdraw(self, join: MemberJoin[M]) -> None:
        """Stop counting *join*, unless its member has left or joined again."""
        if self._members.get(join.member) is not join:
            return
        if join.known:
            self._members[join.member] = None
            self._missing += 1
        else:
            del self._members[join.member]
