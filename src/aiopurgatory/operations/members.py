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

    __slots__ = ("_joins", "_known", "announced", "missing")

    def __init__(self, expected: Iterable[M]) -> None:
        self._joins: dict[M, J | None] = dict.fromkeys(expected)  # None: not joined yet
        #: How many have not joined.
        self.missing = len(self._joins)
        self.announced: set[M] = set()  # by expect(), and in no generation yet
        self._known: set[M] = set()  # have joined, and are still expected if that join is cancelled

    def __len__(self) -> int:
        return len(self._joins)

    def __iter__(self) -> Iterator[M]:
        return iter(self._joins)

    def __contains__(self, member: object) -> bool:
        return member in self._joins

    def has_joined(self, member: M) -> bool:
        return self._joins.get(member) is not None

    def joined(self) -> frozenset[M]:
        """The members that have joined."""
        return frozenset(filter(self.has_joined, self._joins))

    def joins(self) -> list[J]:
        """The joins, in the order of the members."""
        return [join for join in self._joins.values() if join is not None]

    def expect(self, member: M) -> None:
        """Announce *member*. If it has joined, it is still expected when that join is cancelled."""
        # atomic: no await
        if member not in self._joins:
            self._joins[member] = None
            self.missing += 1
            self.announced.add(member)
        elif self._joins[member] is not None and member not in self._known:
            self._known.add(member)
            self.announced.add(member)

    def add(self, member: M, join: J) -> J | None:
        """Count the *join* of *member*. Returns: the earlier join that it replaces."""
        # atomic: no await
        earlier = self._joins.get(member)
        if earlier is None and member in self._joins:
            self._known.add(member)
            self.missing -= 1
        self._joins[member] = join
        return earlier

    def withdraw(self, member: M, join: J) -> None:
        """Stop counting the *join* of *member*, unless *member* has left or joined again."""
        # atomic: no await
        if self._joins.get(member) is not join:
            return
        if member in self._known:
            self._known.remove(member)
            self._joins[member] = None
            self.missing += 1
        else:
            del self._joins[member]

    def remove(self, member: M) -> J | None:
        """Remove *member*. Returns: its join."""
        # atomic: no await
        join = self._joins.pop(member)
        self.announced.discard(member)
        self._known.discard(member)
        if join is None:
            self.missing -= 1
        return join

    def replace(self, member: M, successor: M) -> J | None:
        """Give the place of *member* to *successor*, which has not joined. Returns: the join of *member*."""
        # atomic: no await
        join = self._joins[member]
        self._joins = {successor if each == member else each: other for each, other in self._joins.items()}
        self._joins[successor] = None
        if join is not None:
            self.missing += 1
        if member in self.announced:
            self.announced.remove(member)
            self.announced.add(successor)
        self._known.discard(member)
        return join

    def begin(self, earlier: Generation[M]) -> Generation[M]:
        """Drop the missing members. Returns: the generation of the others; its number grows if there are any."""
        # atomic: no await
        members = tuple(member for member, join in self._joins.items() if join is not None)
        dropped = tuple(member for member, join in self._joins.items() if join is None)
        self._joins = dict.fromkeys(members)
        self.missing = len(members)
        self.announced.clear()
        self._known.clear()
        return Generation(earlier.number + bool(members), members, dropped)
