"""The members of a group: joined, missing or only announced; and what becomes of their joins."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Generic, TypeVar, final

from ..errors import PurgatoryError

M = TypeVar("M", bound=Hashable)
J = TypeVar("J")


class JoinError(PurgatoryError):
    """The join ended without a generation: its member left, joined again or was replaced meanwhile."""


# Not a JoinError: after one of those a member may join again at once; after this it would be refused again.
class GroupFullError(PurgatoryError):
    """A new member was refused because the group already has ``max_members``. The group is unchanged."""


@final
@dataclass(frozen=True, slots=True)
class Generation(Generic[M]):
    """The members that continue together.

    Args:
        number: 1 for the first generation. Each change of the group makes a new one.
        members: the longest-standing first. That one changes only when it leaves or is replaced, so it may lead the
            group.
        dropped: members that were expected and did not join in time.
    """

    number: int
    members: tuple[M, ...]
    dropped: tuple[M, ...]

    def replace(self, member: M, successor: M) -> Generation[M]:
        """Return this generation with *successor* in the place of *member*."""
        return replace(self, members=tuple(successor if each == member else each for each in self.members))


class Standing(Enum):
    """Why a member is one: a generation had it, or expect() announced it, or its join waits, which may be cancelled."""

    SETTLED = auto()
    ANNOUNCED = auto()
    JOINING = auto()


class Members(Generic[M, J]):
    """Keeps the join of each member that has one. While the barrier is open, all members are missing."""

    __slots__ = ("_joins", "_members")

    def __init__(self, expected: Iterable[M]) -> None:
        self._members = dict.fromkeys(expected, Standing.SETTLED)  # in their order
        self._joins: dict[M, J] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[M]:
        return iter(self._members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    @property
    def missing(self) -> int:
        """How many have not joined."""
        return len(self._members) - len(self._joins)

    @property
    def is_new(self) -> bool:
        """Whether no generation had any of them."""
        return Standing.SETTLED not in self._members.values()

    def is_announced(self, member: M) -> bool:
        return self._members[member] is Standing.ANNOUNCED

    def has_joined(self, member: M) -> bool:
        return member in self._joins

    def joined(self) -> frozenset[M]:
        """The members that have joined."""
        return frozenset(self._joins)

    def joins(self) -> list[J]:
        """The joins, in the order of the members."""
        return [self._joins[member] for member in self._members if member in self._joins]

    def expect(self, member: M) -> None:
        """Announce *member*. If it has joined, it is still expected when that join is cancelled."""
        if self._members.get(member) is not Standing.SETTLED:
            self._members[member] = Standing.ANNOUNCED

    def add(self, member: M, join: J) -> J | None:
        """Count the *join* of *member*. Returns: the earlier join that it replaces."""
        # atomic: no await
        self._members.setdefault(member, Standing.JOINING)
        earlier = self._joins.get(member)
        self._joins[member] = join
        return earlier

    def withdraw(self, member: M, join: J) -> None:
        """Stop counting the *join* of *member*, unless *member* has left or joined again."""
        # atomic: no await
        if self._joins.get(member) is join:
            del self._joins[member]
            if self._members[member] is Standing.JOINING:
                del self._members[member]

    def remove(self, member: M) -> J | None:
        """Remove *member*. Returns: its join."""
        # atomic: no await
        del self._members[member]
        return self._joins.pop(member, None)

    def replace(self, member: M, successor: M) -> J | None:
        """Give the place of *member* to *successor*, which has not joined. Returns: the join of *member*."""
        # atomic: no await
        if not self.is_announced(member):
            self._members[member] = Standing.SETTLED  # it is missing, even if *member* was here for its join alone
        self._members = {successor if each == member else each: why for each, why in self._members.items()}
        return self._joins.pop(member, None)

    def begin(self, earlier: Generation[M]) -> Generation[M]:
        """Drop the missing members. Returns: the generation of the others; its number grows if there are any."""
        # atomic: no await
        members = tuple(filter(self.has_joined, self._members))
        dropped = tuple(member for member in self._members if member not in self._joins)
        self._members = dict.fromkeys(members, Standing.SETTLED)
        self._joins.clear()
        return Generation(earlier.number + bool(members), members, dropped)
