"""The result of a join, and its errors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, final

from ...errors import PurgatoryError

M = TypeVar("M", bound=Hashable)


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
