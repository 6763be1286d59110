"""The position of a listener in its topic."""

from __future__ import annotations

import asyncio
from math import inf
from typing import final

from ..errors import GoneError, NotFoundError
from .event import Event, StoreDownError, StoreError
from .shared import MAX_ROWS
from .tail import Tail
from .tails import Tails
from .topic_state import TopicState, number_in, place


@final
class Position:
    """Where a listener is in its topic. Call leave() at the end.

    Args: after: the id of the last event that it has, or None.
    """

    __slots__ = ("_lineage", "_number", "_tail", "_tails", "_until", "id", "is_over", "seen")

    def __init__(self, tails: Tails, topic: str, after: str | None) -> None:
        self._tails = tails
        self.id = after
        self._lineage: object = None
        self._number = 0
        #: The tail's turn when events were taken last. There is something to do if it is another one.
        self.seen = -1
        #: Whether the last event was taken.
        self.is_over = False
        self._tail: Tail | None
        self._tail, self._until = tails.join(topic, after)

    def leave(self) -> None:
        """Leave the tail. Idempotent."""
        tail, self._tail = self._tail, None
        if tail is not None:
            self._tails.leave(tail)

    async def until_known(self, timeout: float) -> None:
        """Wait until the topic is there, or is an empty one, or until next() raises.

        Args: timeout: seconds after which not to wait for the server any longer.
        """
        end = asyncio.get_running_loop().time() + timeout
        while (
            (tail := self._tail) is not None
            and tail.state is None
            and tail.error is None
            and not (tail.is_absent and self._until == inf)
            and not self._is_late(tail)
        ):
            left = None if tail.is_absent else end - asyncio.get_running_loop().time()
            if left is not None and left <= 0.0:
                return
            await asyncio.wait((tail.next_change(),), timeout=left)  # which cancels nothing

    @property
    def is_read(self) -> bool:
        """Whether the topic was read, or is not there."""
        return self._tail is None or self._tail.state is not None or self._tail.is_absent

    def require_topic(self) -> None:
        """Raises: NotFoundError: there is no such topic; StoreDownError: the server has not said so either."""
        if self._tail is not None and self._tail.state is None:
            if self._tail.is_absent and self._until == inf:
                return
            if self._tail.is_absent:
                raise NotFoundError(f"there is no such topic: {self._tail.topic!r}")
            raise StoreDownError("the log has not answered in time")

    def has_news(self) -> bool:
        """Whether next() may return events, or raise."""
        return self._tail is not None and self._tail.turn != self.seen

    def has_answer(self) -> bool:
        """Whether next() will return events, or raise, or the last event was taken. (Not if the server is down.)"""
        tail = self._tail
        if tail is None or tail.turn == self.seen:
            return False
        state, number = tail.state, self._number
        if tail.error is not None or state is None:
            return tail.error is not None or self._lineage is not None or self._is_late(tail)
        if self._lineage is not tail.lineage or self.id is None:
            try:
                number = place(state, self.id)
            except GoneError:
                return True
        return number < tail.last or (state.end is not None and number == state.last)

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
            raise StoreError(f"the topic cannot be read: {tail.error}") from tail.error
        state = tail.state
        if state is None:
            self._require_patience(tail)
            return []
        try:
            if self._lineage is not tail.lineage or self.id is None:
                self._settle(state)
                self._lineage = tail.lineage
            events = tail.since(self._number, MAX_ROWS)
        except GoneError:  # this listener may have read more than its tail: the server tells
            self._number, events = number_in(self.id), None
        if events is None:
            try:
                state, events = await self._older(tail.topic)
            except StoreDownError:
                tail.retry()
                return []
        if events:
            self.id = events[-1].id
            self._number += len(events)
        if self._number < tail.last:
            self.seen = -1
        self.is_over = state.end is not None and self._number == state.last
        return events

    def take(self) -> Event | None:
        """Return the next event if it is the newest, and nothing else has changed; None: call next()."""
        tail = self._tail
        if tail is None or tail.error is not None or self._lineage is not tail.lineage or self.id is None:
            return None
        event = tail.window.last() if tail.last == self._number + 1 else None
        if event is None or event.is_end:
            return None
        self.seen, self.id, self._number = tail.turn, event.id, tail.last
        return event

    def go_on(self, exc: GoneError) -> None:
        """Go on with the kept events."""
        self.id, self._lineage, self.seen = exc.after, None, -1

    def _require_patience(self, tail: Tail) -> None:
        """Raises: NotFoundError: the unknown topic was waited for long enough (S9), or was deleted."""
        if self._lineage is not None:
            raise NotFoundError(f"the topic is not there any more: {tail.topic!r}")
        if self._is_late(tail):
            raise NotFoundError(f"there is no such topic: {tail.topic!r}")

    def _is_late(self, tail: Tail) -> bool:
        """Whether the unknown topic was waited for long enough (S9)."""
        return tail.is_absent and asyncio.get_running_loop().time() >= self._until

    def _settle(self, state: TopicState) -> None:
        """Find the id in *state*. Raises: GoneError."""
        self._number = place(state, self.id)
        if self.id is not None or state.producer:  # else it is the oldest one kept, until there was an event
            self.id = state.id_of(self._number)

    async def _older(self, topic: str) -> tuple[TopicState, list[Event]]:
        read = await self._tails.reads.older(topic, self._number)
        if read is None:
            raise NotFoundError(f"the topic is not there any more: {topic!r}")
        # The topic may have changed since: compare again (S2).
        self._settle(read.state)
        if read.first != self._number + 1:
            after = read.state.id_of(max(read.first, read.state.first) - 1)
            raise GoneError("events are gone; the oldest kept is next", after=after)
        return read.state, list(read.events)
