"""The desk: places and limits of clients, refusals, start, stop, counts. Polls and streams share it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Final, final

from ..arguments import require_name
from ..clock import running_loop
from ..core.kit import Observer, checked_keys, checked_observers, core_of
from ..errors import PurgatoryClosedError
from ..handover import Handover
from ..purgatory import Purgatory
from .answer import Answer, GroupLimitError, Refusals, ReplacedError
from .policy import Policy
from .poll import ClientOperation, Newcomers, Parked
from .prefer import PollRequest
from .signals import on_stop_signal


class Places:
    """The parked polls of named clients and groups. Polls of neither are not stored."""

    def __init__(self, max_per_group: int | None) -> None:
        self._max_per_group = max_per_group
        #: The newest poll by client and resource.
        self.newest: dict[tuple[Hashable, Hashable], ClientOperation[Any]] = {}
        self.groups: dict[Hashable, set[ClientOperation[Any]]] = {}

    def make_room(self, poll: ClientOperation[Any]) -> None:
        """End the older poll of the same client for the same resource.

        Raises: GroupLimitError: the group is full even without that one.
        """
        older = None if poll.client is None else self.newest.get((poll.client, poll.resource))
        group = self.groups.get(poll.group, ())
        limit = self._max_per_group
        if limit is not None and len(group) - (older in group) >= limit:
            raise GroupLimitError(f"this group already has {limit} polls waiting (max_per_group={limit})")
        if older is not None:
            older.fail(ReplacedError("the same client has sent a newer poll"))
            self.leave(older)

    def take(self, poll: ClientOperation[Any]) -> None:
        if poll.client is not None:
            self.newest[poll.client, poll.resource] = poll
        if poll.group is not None:
            self.groups.setdefault(poll.group, set()).add(poll)

    def leave(self, poll: ClientOperation[Any]) -> None:
        """Release the place of *poll*. Idempotent."""
        if poll.client is not None and self.newest.get((poll.client, poll.resource)) is poll:
            del self.newest[poll.client, poll.resource]
        group = self.groups.get(poll.group)
        if group is not None:
            group.discard(poll)
            if not group:
                del self.groups[poll.group]


@final
class Desk:
    """Parks clients in *purgatory*, refuses them, and counts both.

    Args:
        polling: the object that observers get in opened() and closed(); None: those are not called.
        name: labels the statistics; None: the purgatory's.
        observers: are told beside the purgatory's.
        stop_signals: whether stop signals close it.
        adds_keys: a client's keys are watched in addition to its resource; default: in place of it.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        policy: Policy,
        *,
        polling: object = None,
        name: str | None = None,
        observers: Iterable[Observer] = (),
        stop_signals: bool = True,
        adds_keys: bool = False,
    ) -> None:
        if name is not None:
            require_name("name", name)
        if not isinstance(stop_signals, bool):
            raise TypeError(f"stop_signals must be a bool, got {stop_signals!r}")
        self.purgatory: Final = purgatory
        self.policy: Final = policy
        self.name: Final = purgatory.name if name is None else name
        self._polling = polling
        self._observers = checked_observers(observers)
        self._stop_signals = stop_signals
        self._adds_keys = adds_keys
        self.places = Places(policy.max_per_group)
        self.refusals: Final = Refusals(policy.retry_after)
        #: Open streams.
        self.streams = 0
        #: Answers by status.
        self.answered: Final = Counter[int]()
        self._newcomers = Newcomers()
        #: Keys to notify after a linger, from other threads.
        self.handover = Handover(core_of(purgatory).turn_budget)
        #: The loop that the newcomers, the places and the keys belong to.
        self._home: asyncio.AbstractEventLoop | None = None
        #: The loop in which enter() was called, and close() not since.
        self.loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start the purgatory, and open."""
        await self.purgatory.start()
        if self.loop is not running_loop():
            await self.enter()

    async def enter(self) -> None:
        """Open for the first client in a loop. By then every server has installed its signal handlers."""
        loop = running_loop()
        if core_of(self.purgatory).loop.running is not loop:  # otherwise it is open, or was closed on purpose
            await self.purgatory.start()
        if self._home is not loop:
            self._home = loop
            self.places = Places(self.policy.max_per_group)  # a loop that vanished never ended its polls
            self._newcomers = Newcomers()
            self.handover = Handover(core_of(self.purgatory).turn_budget)
        if self._stop_signals:
            on_stop_signal(self.close)
        self.loop = loop  # now that it is true: a signal handler may raise in between
        if self.purgatory.is_open and self._polling is not None:
            core_of(self.purgatory).observers.tell_opened(self._polling, self._observers)

    def close(self) -> None:
        """Close the purgatory, which answers every client."""
        self.purgatory.close()
        self._leave_loop()

    async def aclose(self) -> None:
        await self.purgatory.aclose()
        self._leave_loop()

    def _leave_loop(self) -> None:
        if self.loop is not None:
            self.loop = None
            if self._polling is not None:
                core_of(self.purgatory).observers.tell_closed(self._polling, self._observers)

    # places

    def park(self, poll: ClientOperation[Any], request: PollRequest[Any], parked: Parked) -> None:
        """Add *poll* to *parked*, park it, and listen soon for its client's disconnect.

        Raises: PurgatoryFullError, PurgatoryClosedError.
        """
        parked.append(poll)
        self.place(poll, request)
        if request.listen is not None and not poll.done():
            self._newcomers.add(poll, request.listen)

    def place(self, op: ClientOperation[Any], request: PollRequest[Any]) -> None:
        """Park *op*. Raises: as park(); or an error of its try_complete()."""
        self.places.make_room(op)
        keys = (op.resource,) if request.keys is None else request.keys
        self.purgatory.watch(op, (op.resource, *checked_keys(keys)) if self._adds_keys else keys)
        self.places.take(op)

    def leave(self, poll: ClientOperation[Any]) -> None:
        """Release the place of *poll*. Idempotent."""
        poll.cancel()  # it is still pending if parking raised half-way
        self._newcomers.remove(poll)
        self.places.leave(poll)
        poll.stop_listening()  # raises in a loop that was closed before its tasks ended

    # answers

    def refuse(self, exc: Exception) -> Answer:
        """Return the answer for *exc*, and count it."""
        answer = self.refusals.answer(exc)
        self.count(answer.status)
        return answer

    def unanswered(self, is_deserted: bool) -> Answer:
        """Return the answer to a client that has left, or else that the server cuts off, and count it."""
        if not is_deserted:
            return self.refuse(PurgatoryClosedError("the server stops"))
        self.count(499)
        return Answer(499, b"", [])  # nobody reads it

    def count(self, status: int) -> None:
        """Count an answer when it begins."""
        self.answered[status] += 1
