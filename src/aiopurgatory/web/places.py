"""Places: who has polls parked. The newest of each client, and those of each group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..errors import PurgatoryFullError
from .polls import LongPoll


class ReplacedError(Exception):
    """The same client has sent a newer poll: on the same connection, it waits for the older one (tuwunel #386)."""


class GroupFullError(PurgatoryFullError):
    """The group has as many polls parked as it may."""


class Places:
    """The parked polls of named clients and groups. A poll of neither is not kept here."""

    def __init__(self, max_per_group: int | None) -> None:
        self._max_per_group = max_per_group
        #: By client and resource.
        self._newest: dict[tuple[Hashable, Hashable], LongPoll[Any]] = {}
        self._groups: dict[Hashable, set[LongPoll[Any]]] = {}

    @property
    def clients(self) -> int:
        """Parked polls of named clients."""
        return len(self._newest)

    @property
    def groups(self) -> int:
        """Groups with parked polls."""
        return len(self._groups)

    def make_room(self, poll: LongPoll[Any]) -> None:
        """End the older poll of the same client for the same resource.

        Raises: GroupFullError: the group has its share without that one.
        """
        older = None if poll.client is None else self._newest.get((poll.client, poll.resource))
        group = self._groups.get(poll.group, ())
        limit = self._max_per_group
        if limit is not None and len(group) - (older in group) >= limit:
            raise GroupFullError(f"{limit} polls of this group are waiting already")
        if older is not None:
            older.fail(ReplacedError("the same client has sent a newer poll"))
            self.leave(older)

    def take(self, poll: LongPoll[Any]) -> None:
        if poll.client is not None:
            self._newest[poll.client, poll.resource] = poll
        if poll.group is not None:
            self._groups.setdefault(poll.group, set()).add(poll)

    def leave(self, poll: LongPoll[Any]) -> None:
        """Twice is fine."""
        if poll.client is not None and self._newest.get((poll.client, poll.resource)) is poll:
            del self._newest[poll.client, poll.resource]
        group = self._groups.get(poll.group)
        if group is not None:
            group.discard(poll)
            if not group:
                del self._groups[poll.group]
