"""The desk: the places of clients, and their limits. It refuses, counts, opens and closes, for polls and streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from math import inf
from random import random
from typing import Any, Final, Generic, TypeAlias, final

from ..arguments import require, require_int, require_number, require_seconds
from ..clock import running_loop
from ..core.kit import Observer, checked_keys, checked_observers, core_of
from ..delayed_operation import DelayedOperation
from ..errors import PurgatoryClosedError
from ..handover import Handover
from ..purgatory import Purgatory
from .answer import Answer, DisconnectedError, GroupLimitError, Refusals, ReplacedError
from .connected import Listen
from .request import K, PollRequest
from .signals import on_stop_signal

#: Seconds a poll waits, at most, before the listener for its client's disconnect starts.
LISTEN_AFTER = 0.05


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All waits and limits of clients, of long polls and of event streams. Times are in seconds.

    (The limits of the source, ``max_reads`` and ``max_body_bytes``, are set on LongPolling. How a route reads a request
    is set on the route.)

    The wait that a client asks for is an upper bound (RFC 7240). If nothing happens, a poll with that wait ends between
    wait - margin - jitter x wait and wait - margin, evenly spread.

    Args:
        max_wait: the longest wait, also for a client that asks for none; default 25. Many proxies give up on a silent
            connection after 30 s.
        jitter: the largest share of the wait to take off at random, so that clients don't return in a herd; default
            1/16.
        margin: subtracted from the wait for the answer's way to the client, at most half of the wait; default 0.2.
        linger: how long notify() waits before it answers, so that one answer covers several events; default 0.
        heartbeat: time without an event after which a stream sends a comment; default 15. It shows proxies and clients
            that the connection works.
        stall: how long a stream may take to await the source and send the event, together; default 30. Give the reads
            shorter timeouts.
        max_age: time after which a stream ends, and its client reconnects; default 3,600. None: no limit. It varies at
            random by *jitter*.
        max_per_group: refuse more parked polls and streams of one group than this; None (default): no limit. The limit
            for all together is the purgatory's ``max_pending``.
        retry_after: the lowest and the highest Retry-After, in whole seconds; default (1, 3). A refused client is told
            a random number between them.

    Raises: TypeError, ValueError: an argument of another type, or out of its range.
    """

    max_wait: float = 25.0
    jitter: float = 1 / 16
    margin: float = 0.2
    linger: float = 0.0
    heartbeat: float = 15.0
    stall: float = 30.0
    max_age: float | None = 3600.0
    max_per_group: int | None = None
    retry_after: tuple[int, int] = (1, 3)

    def __post_init__(self) -> None:
        require_seconds("max_wait", self.max_wait, 1e-9, 1e6)
        require(0 <= require_number("jitter", self.jitter) <= 1, "jitter", "from 0 to 1", self.jitter)
        require_seconds("margin", self.margin, 0.0, 1e6)
        require_seconds("linger", self.linger, 0.0, 1e6)
        require_seconds("heartbeat", self.heartbeat, 1e-3, 1e6)
        require_seconds("stall", self.stall, 1e-3, 1e6)
        if self.max_age is not None:
            require_seconds("max_age", self.max_age, 1e-3, 1e6)
        if self.max_per_group is not None:
            require_int("max_per_group", self.max_per_group, 1)
        rule, pair = "a tuple of two ints, the lower one first", self.retry_after
        require(isinstance(pair, tuple) and len(pair) == 2, "retry_after", rule, pair)
        for seconds in pair:
            require_int("retry_after", seconds, 0)
        require(pair[0] <= pair[1], "retry_after", rule, pair)

    def applied(self, asked: float | None) -> float:
        """Return the wait of a client that asked for *asked* seconds; None: it asked for none. 0: answer at once."""
        return self.max_wait if asked is None or asked > self.max_wait else asked

    def age(self) -> float:
        """Return how long a stream may last: not the same for all, so that clients don't return in a herd."""
        return inf if self.max_age is None else self.max_age * (1 - random() * self.jitter)

    def timeout(self, wait: float) -> float:
        """Return how long to park a poll with the wait *wait*."""
        margin = self.margin if 2 * self.margin < wait else wait / 2
        left = wait - margin - random() * self.jitter * wait
        return left if left > 0 else 0.0


#: The slots of a ClientOperation. Each class of places has them itself: one base of a class can have slots.
SLOTS: Final = ("_stop", "client", "group", "left", "resource")


class ClientOperation(DelayedOperation[None], Generic[K]):
    """The place of a client: a poll, or an event stream. It can listen for the client's disconnect."""

    __slots__ = ()

    def place(self, request: PollRequest[K]) -> None:
        """Set what places are told apart by."""
        self.resource, self.client, self.group = request.resource, request.client, request.group
        #: Whether the client has disconnected.
        self.left = False
        self._stop: Callable[[], object] | None = None

    def listen(self, listen: Listen) -> None:
        """Cancel this when the client disconnects, until stop_listening()."""
        self._stop = listen(self.disconnected)

    def stop_listening(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None  # it refers to this: cut the cycle, so that no poll needs the garbage collector

    def disconnected(self, error: Exception | None = None) -> None:
        """Cancel this, because the client has disconnected; or fail with the reason why that would not be noticed."""
        if error is None:
            self.left = True
            self.cancel()
        else:
            self.fail(error)


#: The operations with which a poll has waited.
Parked: TypeAlias = list[ClientOperation[Any]]


class Newcomers:
    """Polls without a listener yet: those answered within half of LISTEN_AFTER never need one. One timer serves all.

    At each call, the polls that were there at the call before get listeners. (If all did, so would polls that have just
    come: on a busy server, a third of the polls that are answered at once.)
    """

    def __init__(self) -> None:
        #: Polls since the timer's last call, and polls that were there at that call.
        self._polls: dict[ClientOperation[Any], tuple[Listen, Context]] = {}
        self._older = self._polls.copy()
        self._has_timer = False

    def add(self, poll: ClientOperation[Any], listen: Listen) -> None:
        self._polls[poll] = listen, copy_context()
        self._call_later()

    def remove(self, poll: ClientOperation[Any]) -> None:
        if self._polls.pop(poll, None) is None:
            self._older.pop(poll, None)

    def _call_later(self) -> None:
        if not self._has_timer:
            # In an empty context: the timer sets the next one, so the first poll's would live on.
            asyncio.get_running_loop().call_later(LISTEN_AFTER / 2, self._listen, context=Context())
            self._has_timer = True

    def _listen(self) -> None:
        older, self._older, self._polls, self._has_timer = self._older, self._polls, {}, False
        if self._older:
            self._call_later()
        for poll, (listen, context) in older.items():
            if not poll.done():
                context.run(poll.listen, listen)  # a middleware's receive() may use variables of its request


class Places:
    """The parked polls of named clients and groups. Polls of neither are not stored."""

    def __init__(self, max_per_group: int | None) -> None:
        self._max_per_group = max_per_group
        #: The newest poll by client and resource.
        self.newest: dict[tuple[Hashable, Hashable], ClientOperation[Any]] = {}
        self.groups: dict[Hashable, set[ClientOperation[Any]]] = {}

    def take(self, poll: ClientOperation[Any]) -> None:
        """Take a place for *poll*, and end the older poll of the same client for the same resource.

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
        policy: None: the default one.
        polling: the object that observers get in opened() and closed(); None: those are not called.
        observers: are told beside the purgatory's.
        stop_signals: whether stop signals close it.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        policy: Policy | None = None,
        *,
        polling: object = None,
        observers: Iterable[Observer] = (),
        stop_signals: bool = True,
    ) -> None:
        require(policy is None or isinstance(policy, Policy), "policy", "a Policy or None", policy, TypeError)
        require(isinstance(stop_signals, bool), "stop_signals", "a bool", stop_signals, TypeError)
        self.purgatory: Final = purgatory
        self.policy: Final = Policy() if policy is None else policy
        self._polling = polling
        self._observers = checked_observers(observers)
        self._stop_signals = stop_signals
        self.places = Places(self.policy.max_per_group)
        self._newcomers = Newcomers()
        self.refusals: Final = Refusals(self.policy.retry_after)
        #: Open streams.
        self.streams = 0
        #: Answers by status, each counted when it begins.
        self.answered: Final = Counter[int]()
        #: Keys to notify after a linger, from other threads.
        self.handover = Handover(core_of(purgatory).turn_budget)
        #: The loop in which this is open.
        self.loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start the purgatory, and open."""
        await self.purgatory.start()
        if self.loop is not running_loop():
            await self.enter()

    async def enter(self) -> None:
        """Open for the first client in a loop. By then every server has installed its signal handlers."""
        loop = running_loop()
        if core_of(self.purgatory).loop.running is not loop:
            await self.purgatory.start()
        if not self.purgatory.is_open:  # it was closed on purpose
            return
        self.places = Places(self.policy.max_per_group)  # a loop that vanished never ended its polls
        self._newcomers = Newcomers()
        self.handover = Handover(core_of(self.purgatory).turn_budget)
        if self._stop_signals:
            on_stop_signal(self.close)
        self.loop = loop  # now that it is true: a signal handler may raise in between
        if self._polling is not None:
            core_of(self.purgatory).observers.tell_opened(self._polling, self._observers)

    def close(self) -> None:
        """Close the purgatory, which answers every client."""
        self.purgatory.close()
        if self.loop is not None:
            self.loop = None
            if self._polling is not None:
                core_of(self.purgatory).observers.tell_closed(self._polling, self._observers)

    async def aclose(self) -> None:
        self.close()
        await self.purgatory.aclose()

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
        self.places.take(op)
        more = () if request.keys is None else checked_keys(request.keys)
        self.purgatory.watch(op, (op.resource, *more))

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
        self.answered[answer.status] += 1
        return answer

    def unanswered(self, is_deserted: bool) -> Answer:
        """Return the answer to a client that has left, or else that the server cuts off, and count it."""
        return self.refuse(DisconnectedError() if is_deserted else PurgatoryClosedError("the server stops"))
