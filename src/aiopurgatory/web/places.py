"""Places: the newest parked poll of each client, and the parked polls of each group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..errors import PurgatoryError, PurgatoryFullError
from .poll import LongPoll


class ReplacedError(PurgatoryError):
    """The same client has sent a newer poll or stream. On one connection, that waits for the older (tuwunel #386)."""


class GroupLimitError(PurgatoryFullError):
    """The group has ``Policy.max_per_group`` polls and streams already."""


class Places:
    """The parked polls of named clients and groups. Polls of neither are not stored."""

    def __init__(self, max_per_group: int | None) -> None:
        self._max_per_group = max_per_group
        #: The newest poll by client and resource.
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

        Raises: GroupLimitError: the group is full even without that one.
        """
        older = None if poll.client is None else self._newest.get((poll.client, poll.resource))
        group = self._groups.get(poll.group, ())
        limit = self._max_per_group
        if limit is not None and len(group) - (older in group) >= limit:
            raise GroupLimitError(f"this group already has {limit} polls waiting (max_per_group={limit})")
        if older is not None:
            older.fail(ReplacedError("the same client has sent a newer poll"))
            self.leave(older)

    def take(self, poll: LongPoll[Any]) -> None:
        if poll.client is not None:
            self._newest[poll.client, poll.resource] = poll
        if poll.group is not None:
            self._groups.setdefault(poll.group, set()).add(poll)

    def leave(self, poll: LongPoll[Any]) -> None:
        """Release the place of *poll*. Idempotent."""
        if poll.client is not None and self._newest.get((poll.client, poll.resource)) is poll:
            del self._newest[poll.client, poll.resource]
        group = self._groups.get(poll.group)
        if group is not None:
            group.discard(poll)
            if not group:
                del self._groups[poll.group]
