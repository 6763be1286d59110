"""The desk: places and limits of clients, refusals, start, stop and statistics. Polls and event streams share it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Any, Final, SupportsIndex, final

from ..arguments import require_hashable, require_name
from ..clock import running_loop
from ..core.kit import (
    ALL,
    EVERY_KEY,
    Observer,
    checked_limit,
    checked_observers,
    checks_of,
    loop_of,
    tell_closed,
    tell_opened,
    turn_budget_of,
)
from ..errors import PurgatoryClosedError, PurgatoryFullError
from ..handover import Handover
from ..purgatory import Purgatory
from .answer import Answer, Refusals
from .asgi import Receive
from .places import Places
from .policy import Policy
from .poll import Linger, LongPoll, Newcomers
from .signals import on_stop_signal
from .stream import EventStream


@final
class Desk:
    """Parks clients in *purgatory*, refuses them, and counts both.

    Args:
        polling: the object that observers are told of; None: they are not told.
        name: labels the statistics; None: the purgatory's.
        observers: are told, as are those of the purgatory.
        stop_signals: whether stop signals close it.
    """

    def __init__(
        self,
        polling: object,
        purgatory: Purgatory,
        policy: Policy,
        name: str | None,
        observers: Iterable[Observer],
        stop_signals: bool,
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
        self.places = Places(policy.max_per_group)
        self.refusals: Final = Refusals(policy.retry_after)
        #: Open streams.
        self.streams = 0
        #: Answers by status.
        self.answered: Final = Counter[int]()
        self._newcomers = Newcomers()
        self._handover = Handover(turn_budget_of(purgatory))
        #: The loop that the newcomers, the handover and the places belong to.
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
        if loop_of(self.purgatory).running is not loop:  # otherwise it is open, or was closed on purpose
            await self.purgatory.start()
        if self._home is not loop:
            self._home = loop
            self.places = Places(self.policy.max_per_group)  # a loop that vanished never ended its polls
            self._newcomers = Newcomers()
            self._handover = Handover(turn_budget_of(self.purgatory))
        if self._stop_signals:
            on_stop_signal(self.close)
        self.loop = loop  # now that it is true: a signal handler may raise in between
        if self.purgatory.is_open and self._polling is not None:
            tell_opened(self.purgatory, self._polling, self._observers)

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
                tell_closed(self.purgatory, self._polling, self._observers)

    # places

    def park(self, poll: LongPoll[Any], keys: Iterable[Hashable] | None) -> None:
        """Park *poll* under *keys*; None: its resource alone. Raises: PurgatoryFullError, PurgatoryClosedError."""
        self.places.make_room(poll)
        self.purgatory.watch(poll, (poll.resource,) if keys is None else keys)
        self.places.take(poll)

    def park_poll(self, poll: LongPoll[Any], keys: Iterable[Hashable] | None, receive: Receive | None) -> None:
        """Same as park(), and listen for the client's disconnect soon."""
        self.park(poll, keys)
        if receive is not None and not poll.done():
            self._newcomers.add(poll, receive)

    def leave(self, poll: LongPoll[Any]) -> None:
        """Release the place of *poll*. Idempotent."""
        poll.cancel()  # it is still pending if parking raised half-way
        self._newcomers.remove(poll)
        self.places.leave(poll)
        poll.stop_listening()  # raises in a loop that was closed before its tasks ended

    def open_stream(self, stream: EventStream[Any], keys: Iterable[Hashable] | None, receive: Receive | None) -> None:
        """Park *stream* until close_stream(), and listen for its client's disconnect.

        Raises: PurgatoryFullError, PurgatoryClosedError, or an error of its try_complete(): it is not open.
        """
        self.streams += 1
        try:
            self.park(stream, keys)
            if receive is not None:
                stream.listen(receive)
        except BaseException:
            self.close_stream(stream)
            raise

    def close_stream(self, stream: EventStream[Any]) -> None:
        """Release the place of *stream*."""
        self.streams -= 1
        self.leave(stream)

    # answers

    def refuse(self, exc: Exception) -> Answer:
        """Return the answer for *exc*, and count it."""
        answer = self.refusals.answer(exc)
        self.count(answer.status)
        return answer

    def count(self, status: int) -> None:
        """Count an answer when it begins."""
        self.answered[status] += 1

    # notifications

    def notify(self, key: Hashable, limit: SupportsIndex | None = None) -> None:
        """Serve LongPolling.notify()."""
        if loop_of(self.purgatory).is_foreign_thread():
            raise RuntimeError("notify() must be called in the loop's thread; from here, use notify_threadsafe(key)")
        if not self.purgatory.is_open:  # not an error: the first poll starts it
            require_hashable("key", key)
            if limit is not None:
                checked_limit(limit)
            return
        if not (self.policy.linger and self.purgatory.waiting(key) and self._linger((self, key), key, limit)):
            self.purgatory.notify(key, limit)

    def notify_all(self) -> None:
        """Serve LongPolling.notify_all()."""
        if not (self.policy.linger and self.purgatory.num_delayed > 0 and self._linger((self,), EVERY_KEY, None)):
            self.purgatory.notify_all()

    def notify_threadsafe(self, key: Hashable) -> None:
        """Serve LongPolling.notify_threadsafe()."""
        if not self.policy.linger and self.purgatory.is_open:
            self.purgatory.notify_threadsafe(key)
            return
        require_hashable("key", key)  # here, not in the loop
        if self.purgatory.is_open:
            self._handover.put(key, loop_of(self.purgatory).running, self.notify)

    def _linger(self, lingering: Hashable, key: Hashable, limit: SupportsIndex | None) -> bool:
        """Check *key* after ``Policy.linger``. Returns: False if the purgatory is full or closed.

        Args: lingering: the key under which the operation that does so waits.
        """
        most = ALL if limit is None else checked_limit(limit)
        there: list[Any] = self.purgatory.waiting(lingering)
        if there:
            there[0].add(most)
            return True
        checks = checks_of(self.purgatory)
        with suppress(PurgatoryClosedError, PurgatoryFullError):
            self.purgatory.watch(Linger(checks, key, most, self.policy.linger), [lingering])
            checks.announce(key)
            return True
        return False
