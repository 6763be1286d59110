"""The join-group barrier: members wait for each other, and go on together as a generation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar, final

from ..errors import PurgatoryClosedError, PurgatoryError
from ..operation import DelayedOperation
from ..purgatory import Purgatory
from .arguments import require_seconds

M = TypeVar("M", bound=Hashable)


class JoinError(PurgatoryError):
    """A join that ends without a generation: its member has left, or has joined anew meanwhile."""


@final
@dataclass(frozen=True, slots=True)
class Generation(Generic[M]):
    """Who goes on together."""

    #: 1 for the first; each change of the group makes a new one.
    number: int
    #: Who has been in the group for longest comes first, and may lead it: that changes only when the member goes.
    members: tuple[M, ...]
    #: Who was expected and did not come in time.
    dropped: tuple[M, ...]


class DelayedJoin(DelayedOperation[None]):
    """The barrier while it is closed: until every expected member has joined, or time is up."""

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
    """The barrier of a group that knows of nobody to wait for: a delay, and again if somebody new came in it."""

    __slots__ = ("_remaining", "_seen")

    def __init__(self, group: JoinBarrier[Any], remaining: float) -> None:
        delay = min(group.initial_delay, remaining)
        super().__init__(group, delay)
        self._remaining = remaining - delay
        self._seen = frozenset(group.members)

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        # In one step, so that no join comes between this barrier and the next.
        group = self._group
        if group._barrier is self and self._remaining > 0 and not self._seen.issuperset(group.members):
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
        self.known = False  # it was expected, and if it takes its join back it still is

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

    def on_undelivered(self, result: Generation[M]) -> None:
        # Counted in, but its task was cancelled before it could know: the others must not rely on it.
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
            assert group.is_closed  # it waits for ann, who learns this with her next heartbeat, say
            group.leave("ann")
            assert (await joins[0]).members == ("bob", "cy")  # bob has been there for longer

    The first join of a known group, and every leave, close the barrier: every member must join again, in time. It
    opens when all have, or at the deadline; who has not come by then is dropped. A group that knows of nobody waits a
    little for others to come, and again while they do.

    Args:
        purgatory: where they wait.
        key: the watch key of the barrier; cancelling it cancels the joins that wait.
        rebalance_timeout: seconds that a barrier stays closed, at most; None: until all have come.
        initial_delay: seconds that an empty group waits for others; anew if somebody came, up to rebalance_timeout in
            all. 0: not at all.
        expected: whom to wait for the first time; then there is no initial delay.

    Raises: TypeError, ValueError: an argument out of its range.

    Source: Kafka DelayedJoin, InitialDelayedJoin and GroupCoordinator (KIP-134).
    """

    __slots__ = (
        "_barrier",
        "_generation",
        "_members",
        "_missing",
        "initial_delay",
        "key",
        "purgatory",
        "rebalance_timeout",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        key: Hashable,
        *,
        rebalance_timeout: float | None,
        initial_delay: float = 0.0,
        expected: Iterable[M] = (),
    ) -> None:
        if rebalance_timeout is not None:
            require_seconds("rebalance_timeout", rebalance_timeout)
        require_seconds("initial_delay", initial_delay)
        if isinstance(expected, (str, bytes)):
            raise TypeError(
                f"expected must be an iterable of members, got the single member {expected!r}; pass [member]"
            )
        hash(key)
        self.purgatory = purgatory
        self.key = key
        self.rebalance_timeout = rebalance_timeout
        self.initial_delay = initial_delay
        self._generation: Generation[M] = Generation(0, (), ())
        self._barrier: DelayedJoin | None = None  # while it is closed
        self._members: dict[M, MemberJoin[M] | None] = dict.fromkeys(expected)  # None: has not joined
        self._missing = len(self._members)  # how many have not; all of them, while the barrier is open

    def __repr__(self) -> str:
        state = f"closed, {self._missing} missing" if self.is_closed else "open"
        return f"<JoinBarrier {self.key!r} generation={self._generation.number} members={len(self._members)} {state}>"

    @property
    def generation(self) -> Generation[M]:
        """The latest; before the first, number 0 with nobody."""
        return self._generation

    @property
    def members(self) -> tuple[M, ...]:
        """Who is in the group: has joined, or is expected to."""
        return tuple(self._members)

    @property
    def is_closed(self) -> bool:
        """Is it waiting for members to join? Then all should."""
        return self._barrier is not None and not self._barrier.done()

    def is_waiting(self, member: M) -> bool:
        """Has *member* joined, and waits for the others?"""
        return self._members.get(member) is not None

    async def join(self, member: M) -> Generation[M]:
        """Wait at the barrier until it opens. Cancelled before, it is as if *member* had not come.

        Returns: the generation that it is in, the same object for all.
        Raises: JoinError: *member* left meanwhile, or joined anew; whatever watch() raises.
        """
        return await self._watch(member)

    def leave(self, member: M) -> bool:
        """Do not wait for *member* any longer; the others must join again. Returns: False if it is no member.

        Raises: PurgatoryFullError: the barrier cannot be closed; *member* stays.
        """
        if member not in self._members:
            return False
        if not self.is_closed:
            with suppress(PurgatoryClosedError):
                self._close(DelayedJoin(self, self.rebalance_timeout))
        # atomic: no await
        join = self._members.pop(member)
        if join is None:
            self._missing -= 1
        else:
            join.fail(JoinError(f"{member!r} has left {self.key!r}"))
        self.purgatory.check_and_complete(self.key)
        return True

    def _watch(self, member: M) -> MemberJoin[M]:
        join = self.purgatory.watch(MemberJoin(self, member), [("join", self.key, member)])
        # atomic: no await
        is_first = not self._members
        earlier = self._members.get(member)
        join.known = member in self._members if earlier is None else earlier.known
        self._missing -= join.known and earlier is None
        self._members[member] = join
        if earlier is not None:
            earlier.fail(JoinError(f"{member!r} has joined {self.key!r} anew"))
        if self.is_closed:
            self.purgatory.check_and_complete(self.key)
            return join
        try:
            self._close(self._barrier_of_nobody() if is_first else DelayedJoin(self, self.rebalance_timeout))
        except BaseException:
            join.cancel()
            raise
        return join

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

    def _open(self) -> None:
        """Everybody who has joined goes on."""
        # atomic: no await
        self._barrier = None
        joins = [join for join in self._members.values() if join is not None]
        members = tuple(join.member for join in joins)
        dropped = tuple(member for member, join in self._members.items() if join is None)
        self._members = dict.fromkeys(members)
        self._missing = len(members)
        self._generation = Generation(self._generation.number + bool(members), members, dropped)
        for join in joins:
            join.pass_on(self._generation)

    def _give_up(self) -> None:
        """The barrier was cancelled, and so is every join."""
        self._barrier = None
        for join in list(self._members.values()):
            if join is not None:
                join.cancel()

    def _withdraw(self, join: MemberJoin[M]) -> None:
        """*join* was cancelled."""
        if join.known:
            self._members[join.member] = None
            self._missing += 1
        else:
            del self._members[join.member]
