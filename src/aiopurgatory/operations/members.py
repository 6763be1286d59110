"""The members of a group: joined, missing or only announced; and what becomes of their joins."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
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


class Members(Generic[M, J]):
    """Keeps the join of each member that has one. While the barrier is open, all members are missing."""

    __slots__ = ("_joins", "_members", "_new", "announced")

    def __init__(self, expected: Iterable[M]) -> None:
        self._members: dict[M, None] = dict.fromkeys(expected)  # an ordered set
        self._joins: dict[M, J] = {}
        self.announced: set[M] = set()  # by expect(), and in no generation yet
        self._new: set[M] = set()  # have joined, and are no members if that join is cancelled

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
        # atomic: no await
        if member not in self._members or member in self._new:
            self._members[member] = None
            self._new.discard(member)
            self.announced.add(member)

    def add(self, member: M, join: J) -> J | None:
        """Count the *join* of *member*. Returns: the earlier join that it replaces."""
        # atomic: no await
        if member not in self._members:
            self._members[member] = None
            self._new.add(member)
        earlier = self._joins.get(member)
        self._joins[member] = join
        return earlier

    def withdraw(self, member: M, join: J) -> None:
        """Stop counting the *join* of *member*, unless *member* has left or joined again."""
        # atomic: no await
        if self._joins.get(member) is join:
            del self._joins[member]
            if member in self._new:
                self.remove(member)

    def remove(self, member: M) -> J | None:
        """Remove *member*. Returns: its join."""
        # atomic: no await
        del self._members[member]
        self.announced.discard(member)
        self._new.discard(member)
        return self._joins.pop(member, None)

    def replace(self, member: M, successor: M) -> J | None:
        """Give the place of *member* to *successor*, which has not joined. Returns: the join of *member*."""
        # atomic: no await
        self._members = {successor if each == member else each: None for each in self._members}
        if member in self.announced:
            self.announced.remove(member)
            self.announced.add(successor)
        self._new.discard(member)
        return self._joins.pop(member, None)

    def begin(self, earlier: Generation[M]) -> Generation[M]:
        """Drop the missing members. Returns: the generation of the others; its number grows if there are any."""
        # atomic: no await
        members = tuple(filter(self.has_joined, self._members))
        dropped = tuple(member for member in self._members if member not in self._joins)
        self._members = dict.fromkeys(members)
        self._joins.clear()
        self.announced.clear()
        self._new.clear()
        return Generation(earlier.number + bool(members), members, dropped)
