"""Keeps a bus connected, one link after another with pauses in between (R4 of rules.py), and completes its flushes."""

from __future__ import annotations

import asyncio
from random import random
from typing import Final, final

from ..clock import cancellations
from .drive import Drive
from .engine import BusClosedError, EchoLostError, Engine
from .rules import Rules

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


@final
class Reconnecting:
    """Opens a new link each time one breaks, from one start of a bus to its close.

    Args:
        rules: new ones for each start.
        timeout: seconds that connecting may take.
    """

    __slots__ = (
        "_drive",
        "_engine",
        "_flushes",
        "_is_stopped",
        "_loop",
        "_pauses",
        "_rules",
        "_timeout",
        "_up",
        "_up_at",
        "error",
    )

    def __init__(self, engine: Engine, rules: Rules, timeout: float) -> None:
        self._engine, self._rules, self._timeout = engine, rules, timeout
        self._loop = asyncio.get_running_loop()
        self._pauses: Final = Pauses(timeout)
        self._drive: Drive | None = None
        #: The time of the link's first echo. None: it had none yet.
        self._up_at: float | None = None
        self._is_stopped = False
        #: For each waiting flush(), the number of its last key.
        self._flushes: dict[asyncio.Future[None], int] = {}
        #: The error that broke the last link, or prevented it.
        self.error: Exception | None = None
        #: Done at the first echo; fails with the error if there is none.
        self._up: asyncio.Future[None] = self._loop.create_future()

    def was_up(self) -> bool:
        """Whether the first echo has arrived."""
        return self._up.done() and self._up.exception() is None

    async def wait_until_up(self) -> None:
        """Wait for the first echo. Raises: the error that prevented it; BusClosedError: stop() was called before."""
        await asyncio.wait([self._up])  # and do not cancel it. A cancelled shield() reports its error, from 3.14 on.
        self._up.result()

    async def run(self) -> None:
        """Connect, and reconnect after each break. Returns after stop(), or if the first link did not come up."""
        try:
            while not self._is_stopped:
                self._up_at = None
                self._drive = Drive(self._engine, self._rules, self._timeout, self._look)
                error = await self._broken(self._drive)
                self.error = error
                if not self._up.done():
                    self._fail(error)
                    return
                up_for = 0.0 if self._up_at is None else self._loop.time() - self._up_at
                timed_out = isinstance(error, TimeoutError | EchoLostError)
                await asyncio.sleep(self._pauses.after(up_for, timed_out, random()))
        finally:
            self.stop()
            self._rules.closed(self._loop.time())

    def wake(self) -> None:
        """Wake the link: there is something to send."""
        if self._drive is not None:
            self._drive.wake()

    def renew(self, why: str) -> None:
        """Open a new link."""
        if self._drive is not None:
            self._drive.lose(ConnectionError(why))

    def stop(self) -> None:
        """Drop the connections now, and fail every waiting flush() and start(). Idempotent."""
        self._is_stopped = True
        if self._drive is not None:
            self._drive.abort()
        for flush in self._flushes:
            if not flush.done():
                flush.set_exception(BusClosedError("the bus was closed before the server acknowledged every key"))
        self._flushes.clear()
        if not self._up.done():
            self._fail(BusClosedError("the bus was closed before it was connected"))

    async def flush(self) -> None:
        mark = self._rules.outbox.mark()
        if self._rules.outbox.acknowledged_up_to() >= mark:
            return
        flush = self._loop.create_future()
        self._flushes[flush] = mark
        try:
            await flush
        finally:
            self._flushes.pop(flush, None)

    async def _broken(self, drive: Drive) -> Exception:
        """Serve a link until it breaks. Returns: the error that broke it."""
        before = cancellations()  # a client library may have lost one
        try:
            await drive.run()
        except asyncio.CancelledError as exc:
            if self._is_stopped or cancellations() > before:
                raise
            # The client library cancelled a task or future of its own, so only the link is over.
            return ConnectionError(f"the connection was cancelled: {exc!r}")
        except Exception as exc:
            return exc
        raise AssertionError("a link ends with an exception")

    def _fail(self, why: Exception) -> None:
        self._up.set_exception(why)
        self._up.exception()  # mark it as retrieved: perhaps nothing awaits it any more

    def _look(self) -> None:
        """Complete waiting calls after an echo or an acknowledgement."""
        if self._rules.connected and self._up_at is None:
            self._up_at = self._loop.time()
            if not self._up.done():
                self._up.set_result(None)
        if self._flushes:
            acknowledged = self._rules.outbox.acknowledged_up_to()
            for flush, mark in self._flushes.items():
                if mark <= acknowledged and not flush.done():
                    flush.set_result(None)


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

    def after(self, up_for: float, timed_out: bool, chance: float) -> float:
        """Return the seconds to wait after a link broke, or could not be opened.

        Args:
            up_for: seconds since the link's first echo; 0.0 if there was none.
            timed_out: whether the server did not answer in time.
            chance: a random number from 0 to 1, so that processes don't return in a herd.
        """
        self._breaks = min(max(0.0, self._breaks - up_for / STEADY) + 1.0, _MOST_BREAKS)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._breaks - 1.0))
        before = 0 if up_for else self._timed_out
        self._timed_out = min(before + 1, _MOST_TIMED_OUT) if timed_out else 0
        if self._timed_out > 1:
            pause = max(pause, min(self._timeout * 2.0 ** (self._timed_out - 2), max(self._timeout, LONGEST_TIMED_OUT)))
        return float(pause * (0.5 + chance / 2))
