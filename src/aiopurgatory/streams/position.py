"""The position of a listener in its topic."""

from __future__ import annotations

from typing import final

from ..errors import GoneError, NotFoundError
from .event import Event
from .rules import State, place
from .tail import Tail
from .tails import Tails

#: The most events to return at a time.
_MOST = 1_000


@final
class Position:
    """Where a listener is in its topic. Call leave() at the end.

    Args: after: the id of the last event that it has, or None.
    """

    __slots__ = ("_lineage", "_number", "_tail", "_tails", "id", "is_over", "seen")

    def __init__(self, tails: Tails, topic: str, after: str | None) -> None:
        self._tails = tails
        self.id = after
        self._lineage: object = None
        self._number = 0
        #: The tail's turn when events were taken last. There is something to do if it is another one.
        self.seen = -1
        #: Whether the last event was taken.
        self.is_over = False
        self._tail: Tail | None = tails.join(topic, after)

    def leave(self) -> None:
        """Leave the tail. Idempotent."""
        tail, self._tail = self._tail, None
        if tail is not None:
            self._tails.leave(tail)

    def turn(self) -> str:
        """Return what changes whenever next() may return events, or raise."""
        return str(self._tail.turn if self._tail is not None else -1)

    def is_unknown(self) -> bool:
        """Whether the topic is not there yet."""
        return self._tail is not None and self._tail.state is None

    def has_news(self) -> bool:
        """Whether next() may return events, or raise."""
        return self._tail is not None and self._tail.turn != self.seen

    async def next(self) -> list[Event]:
        """Return the next events; none if there is no newer one yet.

        Raises:
            GoneError: the next ones are gone. Set ``id`` to ``exc.after`` to go on.
            NotFoundError: there is no such topic.
            StoreError: the topic cannot be read.
        """
        tail = self._tail
        assert tail is not None, "it has left"
        self.seen = tail.turn
        if tail.error is not None:
            raise tail.error
        state = tail.state
        if state is None:
            if tail.is_unknown():
                raise NotFoundError("there is no such topic")
            return []
        if self._lineage is not tail.lineage or self.id is None:
            self._number = place(state, self.id)
            self.id = state.id_of(self._number)
            self._lineage = tail.lineage
        events = tail.since(self._number)
        if events is None:
            state, events = await self._older(tail.topic)
        if len(events) > _MOST:
            del events[_MOST:]
        if events:
            self.id = events[-1].id
            self._number += len(events)
        if self._number < tail.last:
            self.seen = -1
        self.is_over = state.end is not None and self._number == state.last
        return events

    def go_on(self, exc: GoneError) -> None:
        """Go on with what is kept."""
        self.id, self._lineage, self.seen = exc.after, None, -1

    async def _older(self, topic: str) -> tuple[State, list[Event]]:
        state, events, number = await self._tails.older(topic, self._number)
        # The topic may have changed since: compare again (S2).
        if place(state, self.id) != self._number or number != self._number + 1:
            raise GoneError("events are gone; the oldest kept is next", after=state.id_of(max(number, state.first) - 1))
        return state, events
