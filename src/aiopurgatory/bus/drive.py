"""Runs the exchange on an event loop for one link to the server, from subscription to break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import final

from .engine import BusClosedError, EchoLostError, Engine, Link, NeverEchoedError, ReplayingLink
from .exchange import Exchange

#: Loop iterations before an answer counts as missing. After a stall, a loop runs its timers before it reads from its
#: sockets.
GRACE: int = 5


@final
class Drive:
    """Connects once, then sends and receives until the link breaks.

    Args:
        timeout: seconds that connecting may take.
        told: called without arguments after each acknowledgement and each received message.
    """

    def __init__(self, engine: Engine, exchange: Exchange, timeout: float, told: Callable[[], object]) -> None:
        self._engine, self._exchange, self._timeout, self._told = engine, exchange, timeout, told
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._scope: asyncio.Timeout | None = None
        #: The future that the task awaits when there is nothing to send.
        self._sleeper: asyncio.Future[None] | None = None
        #: The timer for _tick(), and its time, or infinity: uvloop's handle for a past time has no when().
        self._timer: asyncio.Handle | None = None
        self._due = inf
        self._why: Exception | None = None
        self._is_over = False

    async def run(self) -> None:
        """Connect and serve the link. Never returns. Raises: the error that broke the link."""
        try:
            async with asyncio.timeout(self._timeout):
                self._link = await self._engine.open(self._hear, self.lose)
            self._raise_if_broken()
            self._exchange.confirmed(self._loop.time())
            async with asyncio.timeout(None) as self._scope:
                await self._send_forever(self._link)
        except Exception:  # raise the first error, not its consequence
            if self._why is None:
                raise
            raise self._why from None
        finally:
            is_closed = self._is_over
            self.abort()
            if not is_closed:
                self._exchange.broken(self._loop.time())

    def wake(self) -> None:
        """Wake the task: there is something to send."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def lose(self, why: Exception) -> None:
        """Give up the link; run() raises *why*."""
        if self._is_over or self._why is not None:
            return
        self._why = why
        self._abort_link()
        if self._scope is not None:
            self._scope.reschedule(self._loop.time())
        self.wake()

    def abort(self) -> None:
        """Drop the connections without waiting for the server. Idempotent."""
        self._is_over = True
        self._why = self._why or BusClosedError("the bus was closed")
        if self._timer is not None:
            self._timer.cancel()
        self._abort_link()

    async def _send_forever(self, link: Link) -> None:
        while True:
            self._raise_if_broken()
            first = self._exchange.reads_from()
            if first is not None:
                assert isinstance(link, ReplayingLink), "its engine replays"
                await self._replay(link, first)
                continue
            messages = self._exchange.messages(self._loop.time())
            self._arm()
            if messages:
                await link.send(messages)
                self._raise_if_broken()  # a lost cancellation is no acknowledgement
                self._exchange.acknowledged(self._loop.time())
                self._told()
            else:
                # No await since messages(), so a later publish finds the sleeper.
                self._sleeper = self._loop.create_future()
                await self._sleeper

    async def _replay(self, link: ReplayingLink, first: str) -> None:
        """Read one page of the messages that a gap has swallowed (R10)."""
        async with asyncio.timeout(self._timeout):
            entries = await link.read(first)
        self._raise_if_broken()
        self._exchange.replay(entries, self._loop.time())
        self._arm()

    def _raise_if_broken(self) -> None:
        """Raise the error that broke the link. Needed if a client library lost the task's cancellation."""
        if self._why is not None:
            raise self._why

    def _abort_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    def _hear(self, message: str) -> None:
        if self._is_over:
            return
        try:
            self._exchange.hear(message, self._loop.time())
            self._told()
            self._arm()
            if self._exchange.reads_from() is not None:
                self.wake()
        except BaseException as exc:  # a client library may only log it, and the keys would be lost
            self._lose_by(exc)

    def _lose_by(self, exc: BaseException) -> None:
        """Give up the link: *exc* has interrupted a check, and the next link checks everything."""
        if isinstance(exc, Exception):
            self.lose(exc)
        else:
            self.lose(ConnectionError(f"a check was interrupted by {type(exc).__name__}: {exc}"))
            raise exc

    # time

    def _arm(self) -> None:
        """Schedule _tick() for the next time in the exchange. Call it after each change of the exchange.

        An earlier timer stays, because its _tick() calls this again.
        """
        when = self._exchange.next_at()
        if when < self._due and not self._is_over:
            if self._timer is not None:
                self._timer.cancel()
            # Add a millisecond: uvloop's timers may fire that early.
            self._timer = self._loop.call_at(when + 0.001, self._tick)
            self._due = when  # now that it is true: a signal handler may raise in between

    def _tick(self) -> None:
        self._timer, self._due = None, inf
        now = self._loop.time()
        try:
            self._exchange.tick(now)
        except BaseException as exc:  # some targets were not checked
            self._lose_by(exc)
        if self._exchange.echo.is_overdue(now):
            self._judge(GRACE)
            return
        if self._exchange.echo.is_probe_due(now):
            self.wake()
        self._arm()  # even after wake(): the task may be sending, and not call this soon

    def _judge(self, iterations: int) -> None:
        if self._is_over:
            return
        if not self._exchange.echo.is_overdue(self._loop.time()):
            self._arm()
        elif iterations > 0:
            self._loop.call_soon(self._judge, iterations - 1)
        else:
            self.lose(self._missing())

    def _missing(self) -> EchoLostError:
        if self._exchange.echo.is_acknowledgement_overdue(self._loop.time()):
            return EchoLostError("did not acknowledge a message in time: is it stopped, overloaded or cut off?")
        if not self._exchange.connected:
            return NeverEchoedError("does not send the bus its own messages")
        return EchoLostError(
            "no longer sends the bus its own messages, or too late: is the connection that listens cut off or slow, or "
            "is this event loop overloaded?"
        )
