"""Keeps a bus connected (R4 of exchange.py): runs the exchange on one link after another, with pauses in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, TypeAlias, final

from ..clock import backoff, cancellations
from .engine import BusClosedError, EchoLostError, Hear, Link, Lost, NeverEchoedError
from .exchange import Exchange

#: Loop iterations before an answer counts as missing. After a stall, a loop runs its timers before it reads from its
#: sockets.
GRACE: Final = 5
#: Seconds: the first pause, and the longest. Pauses double with each break.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
#: Seconds: the longest pause after attempts that timed out. A longer timeout replaces it.
LONGEST_TIMED_OUT: Final = 10.0
#: Each doubling is undone by a link that was up for so many seconds.
STEADY: Final = 1.0
#: Breaks after which the pause grows no more.
_MOST_BREAKS: Final = 7.0
#: Attempts in a row that timed out, after which the pause grows no more.
_MOST_TIMED_OUT: Final = 4
#: Seconds to wait for the cancelled task to end, and how often to cancel it. A client library may lose a cancellation.
_PATIENCE: Final = 0.5
_ATTEMPTS: Final = 4

#: Opens a link, as Engine.open() does.
Open: TypeAlias = Callable[[Hear, Lost], Awaitable[Link]]


@final
class Reconnecting:
    """Opens a new link each time one breaks, from one start of a bus to its close.

    Args:
        exchange: new ones for each start.
        timeout: seconds that connecting may take.
        failed: called with the error of each further link that did not come up.
    """

    def __init__(
        self, open_link: Open, exchange: Exchange, timeout: float, failed: Callable[[Exception], object]
    ) -> None:
        self._open, self.exchange, self._timeout, self._failed = open_link, exchange, timeout, failed
        self._task: asyncio.Task[None] | None = None
        self._pauses: Final = Pauses(timeout)
        self._drive: Drive | None = None
        #: The time of the link's first echo. Infinity: it had none yet.
        self._up_at = inf
        self._is_stopped = False
        #: Of the last renew(): no failure of the server.
        self._renewal: Exception | None = None
        #: Set at each echo, at each acknowledgement, and by stop(). Who waits clears it first: a signal handler may
        #: raise between set() and clear(), and all would spin.
        self._told: Final = asyncio.Event()
        #: The error that broke the last link, or prevented it.
        self.error: Exception | None = None
        #: Whether the first echo has arrived.
        self.was_up = False

    def begin(self, ended: Callable[[asyncio.Task[None]], object]) -> None:
        """Connect, and reconnect after each break, in a task of its own. Args: ended: called with it at its end."""
        run = self._run()
        try:
            self._task = asyncio.get_running_loop().create_task(run, name="aiopurgatory bus")
        except BaseException:
            run.close()
            raise
        self._task.add_done_callback(ended)

    async def wait_until_up(self) -> None:
        """Wait for the first echo. Raises: the error that prevented it; BusClosedError: stop() was called before."""
        await self._until(lambda: self.was_up, "it was connected")

    async def flush(self) -> None:
        """Wait until the server has acknowledged every key. Raises: BusClosedError: stop() was called before."""
        outbox = self.exchange.outbox
        last = outbox.serial
        await self._until(lambda: outbox.has_acknowledged(last), "the server acknowledged every key")

    def wake(self) -> None:
        """Wake the link: there is something to send."""
        if self._drive is not None:
            self._drive.wake()

    def renew(self, why: str) -> None:
        """Open a new link."""
        if self._drive is not None:
            self._renewal = ConnectionError(why)
            self._drive.lose(self._renewal)

    def stop(self) -> None:
        """Drop the connections now, and fail every waiting flush() and start(). Idempotent."""
        self._is_stopped = True
        if self._drive is not None:
            self._drive.abort(BusClosedError("the bus was closed"))
        self._told.set()

    async def end(self) -> asyncio.Task[None] | None:
        """Stop, and cancel the task. Returns: the task, if it has not ended in bounded time."""
        self.stop()
        task = self._task
        for _ in range(_ATTEMPTS):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_PATIENCE)
        return None if task is None or task.done() else task

    async def _run(self) -> None:
        """Returns after stop(), or if the first link did not come up."""
        time = asyncio.get_running_loop().time
        try:
            while not self._is_stopped:
                self._up_at = inf
                self._drive = Drive(self._open, self.exchange, self._timeout, self._look)
                self.error = error = await self._broken(self._drive)
                if not self.was_up and error is not self._renewal:
                    return
                if self._up_at == inf and error is not self._renewal and not self._is_stopped:
                    self._failed(error)
                timed_out = isinstance(error, TimeoutError | EchoLostError)
                await asyncio.sleep(self._pauses.after(max(0.0, time() - self._up_at), timed_out))
        finally:
            self.stop()
            self.exchange.closed(time())

    async def _broken(self, drive: Drive) -> Exception:
        """Serve a link until it breaks. Returns: the error that broke it."""
        before, loop = cancellations(), asyncio.get_running_loop()  # a client library may have lost one
        try:
            await drive.run()
        except asyncio.CancelledError as exc:
            if self._is_stopped or cancellations() > before:
                raise
            # The client library cancelled a task or future of its own, so only the link is over.
            return ConnectionError(f"the connection was cancelled: {exc!r}")
        except Exception as exc:
            return exc
        finally:
            if not (self._is_stopped or loop.is_closed()):  # else it is no gap, or the coroutine is garbage
                self.exchange.broken(loop.time())
        raise AssertionError("a link ends with an exception")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until *holds* is true. Raises: the error that prevented the first link; BusClosedError."""
        while not holds():
            if self._is_stopped:
                raise (None if self.was_up else self.error) or BusClosedError(f"the bus was closed before {what}")
            self._told.clear()
            await self._told.wait()

    def _look(self) -> None:
        """Note an echo or an acknowledgement."""
        if self.exchange.connected and self._up_at == inf:
            self._up_at, self.was_up = asyncio.get_running_loop().time(), True
        self._told.set()


@final
class Drive:
    """Connects once, then sends and receives until the link breaks.

    Args:
        timeout: seconds that connecting may take.
        told: called without arguments after each acknowledgement and each received message.
    """

    def __init__(self, open_link: Open, exchange: Exchange, timeout: float, told: Callable[[], object]) -> None:
        self._open, self._exchange, self._timeout, self._told = open_link, exchange, timeout, told
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._scope: asyncio.Timeout | None = None
        #: Set when there may be something to send or to read.
        self._called: Final = asyncio.Event()
        #: The timer for _tick(), and its time, or infinity: uvloop's handle for a past time has no when().
        self._timer: asyncio.Handle | None = None
        self._due = inf
        #: Why the link is over. None: it is not.
        self._why: Exception | None = None

    async def run(self) -> None:
        """Connect and serve the link. Never returns. Raises: the error that broke the link."""
        try:
            async with asyncio.timeout(self._timeout):
                self._link = await self._open(self._hear, self.lose)
            self._raise_if_broken()
            self._exchange.confirmed(self._loop.time())
            async with asyncio.timeout(None) as self._scope:
                await self._send_forever(self._link)
        except Exception:  # raise the first error, not its consequence
            if self._why is None:
                raise
            raise self._why from None
        finally:
            self.abort(ConnectionError("the link has broken"))

    def wake(self) -> None:
        """Wake the task: there is something to send."""
        self._called.set()

    def lose(self, why: Exception) -> None:
        """Give up the link; run() raises *why*."""
        if self._why is not None:
            return
        self.abort(why)
        if self._scope is not None:
            self._scope.reschedule(self._loop.time())
        self.wake()

    def abort(self, why: Exception) -> None:
        """Drop the connections without waiting for the server. Idempotent: the first *why* holds."""
        self._why = self._why or why
        if self._timer is not None:
            self._timer.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    async def _send_forever(self, link: Link) -> None:
        while True:
            self._raise_if_broken()
            self._called.clear()  # what comes from here on wakes the task
            first = self._exchange.reads_from()
            if first is not None:
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
                await self._called.wait()

    async def _replay(self, link: Link, first: str) -> None:
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

    def _hear(self, message: str) -> None:
        if self._why is not None:
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
        if when < self._due and self._why is None:
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
        if now >= self._exchange.echo.probe_at():
            self.wake()
        self._judge(GRACE)

    def _judge(self, iterations: int) -> None:
        """Give up the link if an answer is still overdue after so many loop *iterations*."""
        if self._why is not None:
            return
        if self._loop.time() < self._exchange.echo.overdue_at():
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


@final
class Pauses:
    """Doubles the pause with each break, and halves it with every STEADY seconds that a link was up.

    An echo alone does not shorten the pause: a link that breaks after each echo would cause too many checks of
    everything. An attempt that timed out may go on at the server. So after the second in a row, pauses
    grow from one timeout to four, but not beyond ten seconds.

    Args: timeout: seconds that an attempt may take.
    """

    __slots__ = ("_breaks", "_timed_out", "_timeout")

    def __init__(self, timeout: float) -> None:
        self._timeout: Final = timeout
        self._breaks = 0.0
        self._timed_out = 0

    def after(self, up_for: float, timed_out: bool) -> float:
        """Return the seconds to wait after a link broke, or could not be opened.

        Args:
            up_for: seconds since the link's first echo; 0.0 if there was none.
            timed_out: whether the server did not answer in time.
        """
        self._breaks = min(max(0.0, self._breaks - up_for / STEADY) + 1.0, _MOST_BREAKS)
        pause = backoff(self._breaks - 1.0, FIRST_PAUSE, LONGEST_PAUSE)
        before = 0 if up_for else self._timed_out
        self._timed_out = min(before + 1, _MOST_TIMED_OUT) if timed_out else 0
        if self._timed_out > 1:
            pause = max(pause, backoff(self._timed_out - 2, self._timeout, max(self._timeout, LONGEST_TIMED_OUT)))
        return pause
