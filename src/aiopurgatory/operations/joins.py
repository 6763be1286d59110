"""The operations of a group: one for each member that has joined, and the closed barrier, which has the deadline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from ..operation import DelayedOperation
from .members import Generation, Members

M = TypeVar("M", bound=Hashable)


class Group(Generic[M]):
    """A group, as its operations see it."""

    __slots__ = ("_members",)

    def __init__(self, members: Members[M, MemberJoin[M]]) -> None:
        self._members = members

    @abstractmethod
    def _open(self, barrier: DelayedJoin | None) -> None:
        """Begin a generation of the members that have joined, unless *barrier* is not the group's any more."""

    @abstractmethod
    def _replace(self, barrier: DelayedJoin, successor: DelayedJoin) -> None:
        """Watch *successor*, unless *barrier* is not the group's any more."""

    @abstractmethod
    def _give_up(self, barrier: DelayedJoin) -> None:
        """Cancel every join, unless *barrier* is not the group's any more."""

    @abstractmethod
    def _undelivered(self, member: M, generation: Generation[M]) -> None:
        """Remove *member*: its task was cancelled before it received *generation*."""


class DelayedJoin(DelayedOperation[None]):
    """The closed barrier: opens when every expected member has joined, or at the deadline."""

    __slots__ = ("_group",)

    def __init__(self, group: Group[Any], timeout: float | None) -> None:
        super().__init__(timeout)
        self._group = group

    def try_complete(self) -> bool:
        return not self._group._members.missing and self.force_complete()

    def on_complete(self) -> None:
        self._group._open(self)

    def on_cancel(self) -> None:
        self._group._give_up(self)


class InitialDelayedJoin(DelayedJoin):
    """The barrier of an empty group: a delay, repeated if a member joined during it or is missing."""

    __slots__ = ("_delay", "_remaining", "_seen")

    def __init__(self, group: Group[Any], delay: float, remaining: float) -> None:
        super().__init__(group, min(delay, remaining))
        self._delay = delay
        self._remaining = remaining - min(delay, remaining)
        self._seen = group._members.joined()

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        # In one step, so that no join can come between this barrier and the next.
        members = self._group._members
        if self._remaining > 0 and (members.missing or not self._seen.issuperset(members)):
            self._group._replace(self, InitialDelayedJoin(self._group, self._delay, self._remaining))
        else:
            super().on_complete()


class MemberJoin(DelayedOperation[Generation[M]]):
    """One member at the barrier. It has no deadline: the barrier has one."""

    __slots__ = ("_generation", "_group", "member")

    def __init__(self, group: Group[M], member: M) -> None:
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
            self._group._open(None)
        assert self._generation is not None
        return self._generation

    def on_cancel(self) -> None:
        self._group._members.withdraw(self.member, self)

    def on_failure(self, exc: BaseException) -> None:
        self._group._members.withdraw(self.member, self)

    def on_undelivered(self, result: Generation[M]) -> None:
        self._group._undelivered(self.member, result)
