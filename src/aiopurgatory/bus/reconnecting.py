"""Keeps a bus connected, one link after another with pauses in between (R4 of exchange.py). Completes its flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from ..backoff import backoff
from ..clock import cancellations
from .drive import Drive
from .engine import BusClosedError, EchoLostError, Engine
from .exchange import Exchange

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


@final
class Reconnecting:
    """Opens a new link each time one breaks, from one start of a bus to its close.

    Args:
        exchange: new ones for each start.
        timeout: seconds that connecting may take.
    """

    def __init__(self, engine: Engine, exchange: Exchange, timeout: float) -> None:
        self._engine, self.exchange, self._timeout = engine, exchange, timeout
        self._task: asyncio.Task[None] | None = None
        self._pauses: Final = Pauses(timeout)
        self._drive: Drive | None = None
        #: The time of the link's first echo. None: it had none yet.
        self._up_at: float | None = None
        self._is_stopped = False
        #: Done at the next echo, acknowledgement or stop; None: nothing waits for it.
        self._next: asyncio.Future[None] | None = None
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
        mark = outbox.mark()
        await self._until(lambda: outbox.acknowledged_up_to() >= mark, "the server acknowledged every key")

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
        self._tell()

    async def end(self) -> asyncio.Task[None] | None:
        """Stop, and cancel the task. Returns: the task, if it has not ended in bounded time."""
        self.stop()
        task = self._task
        for _ in range(_ATTEMPTS):
            if task is None or task.done():
                return None
            task.cancel()
            await asyncio.wait([task], timeout=_PATIENCE)
        return None if task is None or task.done() else task

    async def _run(self) -> None:
        """Returns after stop(), or if the first link did not come up."""
        time = asyncio.get_running_loop().time
        try:
            while not self._is_stopped:
                self._up_at = None
                self._drive = Drive(self._engine, self.exchange, self._timeout, self._look)
                self.error = error = await self._broken(self._drive)
                if not self.was_up:
                    return
                up_for = 0.0 if self._up_at is None else time() - self._up_at
                timed_out = isinstance(error, TimeoutError | EchoLostError)
                await asyncio.sleep(self._pauses.after(up_for, timed_out))
        finally:
            self.stop()
            self.exchange.closed(time())

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

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until *holds* is true. Raises: the error that prevented the first link; BusClosedError."""
        while not holds():
            if self._is_stopped:
                raise (None if self.was_up else self.error) or BusClosedError(f"the bus was closed before {what}")
            if self._next is None or self._next.done():
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._next])  # and do not cancel it: others may wait for it

    def _look(self) -> None:
        """Note an echo or an acknowledgement."""
        if self.exchange.connected and self._up_at is None:
            self._up_at, self.was_up = asyncio.get_running_loop().time(), True
        self._tell()

    def _tell(self) -> None:
        """Have waiting calls look again."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


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
