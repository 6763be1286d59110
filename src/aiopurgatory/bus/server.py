"""A bus on a server: it connects, publishes, flushes and reconnects, on an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Hashable, Iterable
from contextvars import Context
from functools import partial
from math import inf
from typing import Final, TypedDict

from ..arguments import require_seconds
from ..clock import running_loop
from ..core.kit import Observer
from .bus import Bus, BusStatistics
from .engine import CHANNEL, BusClosedError, BusConnectError, Engine
from .exchange import Exchange
from .gaps import Pace
from .missed import Missed
from .reconnecting import Reconnecting
from .targets import Target

logger = logging.getLogger("aiopurgatory")

#: Seconds between two warnings of an outage.
QUIET: Final = 60.0


class BusOptions(TypedDict, total=False):
    """The options of every bus on a server; see ServerBus."""

    name: str
    heartbeat: float
    timeout: float
    spread: float
    observers: Iterable[Observer]


class ServerBus(Bus):
    """Checks keys in every process that uses the same channel of the same server. See Bus for its methods.

    While this process lives, every other process checks each published key after the publish. If a gap swallows the
    message, that process checks every key after the gap instead. A gap is noticed within 1.5 * heartbeat + timeout. A
    key may be checked more than once. If this process dies before flush() returns, its last keys may be lost.

    Args:
        engine: the server.
        targets: as for Bus.
        heartbeat: seconds without a publish after which the bus sends a message to itself; default 5. Every process
            receives all of these: with 100 idle processes and 5 s, each receives 20 a second.
        timeout: seconds that the server may take to accept a connection, to acknowledge, and to send the echo;
            default 5.
        spread: seconds; default 0. After a gap, each process checks everything at a random time within them. Otherwise
            all do so at once when a server comes back, and may overload the database that they then read.
        observers: as for Bus. If the bus's task is cancelled from outside, the bus stays open for observers, and its
            statistics give the reason.
        name: as for Bus.
        replays: whether the server keeps the newest messages, as missed.py says; default False.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(
        self,
        engine: Engine,
        targets: Iterable[Target] | None,
        *,
        heartbeat: float = 5.0,
        timeout: float = 5.0,
        spread: float = 0.0,
        observers: Iterable[Observer] = (),
        name: str = CHANNEL,
        replays: bool = False,
    ) -> None:
        require_seconds("heartbeat", heartbeat, 0.01, 3600.0)
        require_seconds("timeout", timeout, 0.01, 3600.0)
        require_seconds("spread", spread, 0.0, 3600.0)
        super().__init__(targets, observers=observers, name=name)
        self._engine, self.replays = engine, replays
        #: Its own, then the channels of logs that share it.
        self._channels = [name]
        self._timeout, self._pace = timeout, Pace(heartbeat, timeout, spread)
        #: When the next failed attempt to connect again is logged.
        self._quiet_until = -inf
        #: Of the newest start.
        self._reconnecting = self._new_reconnecting()

    def __repr__(self) -> str:
        state = "connected" if self._is_connected() else "disconnected" if self._is_open else "closed"
        exchange = self._reconnecting.exchange
        return f"<{type(self).__name__} {self.name!r} {state} outbox={len(exchange.outbox)} gaps={exchange.gaps}>"

    async def start(self) -> None:
        """Connect, in the running loop. Return when the first echo has arrived.

        A call during another start() shares its outcome. Once connected, a call does nothing.

        Raises:
            BusConnectError: it cannot connect; the message has the reason and the remedy.
            BusClosedError: aclose() was called meanwhile, or the other start() was cancelled.
            RuntimeError: the bus runs in another loop, or was started before a fork.
        """
        loop = running_loop()
        if self._is_open_in(loop):
            await self._until_up(self._reconnecting)
            return
        self._begin(loop)
        # A new one, because the task of an earlier start may still be ending.
        self._reconnecting = reconnecting = self._new_reconnecting()
        # In an empty context: a request may call this, and the bus lives longer.
        Context().run(reconnecting.begin, partial(self._ended, reconnecting))
        self._is_open = True
        try:
            self._tell(lambda observer: observer.opened(self))
            await self._until_up(reconnecting)
        except BaseException:
            await self._stop(reconnecting)
            raise

    async def aclose(self) -> None:
        """Flush for up to ``timeout`` seconds if the bus is connected, then disconnect.

        Ends within ``timeout`` + 2 s, even if the server does not respond. Keys that are not acknowledged by then are
        dropped, and a warning is logged. A second call does nothing. In a forked child process, it leaves the
        connections to the parent.
        """
        reconnecting, is_open = self._reconnecting, self._is_open
        self._shut()
        # In a child, closing the sockets would remove them from the epoll shared with the parent.
        if not is_open or self._pid != os.getpid():
            return
        try:
            if self._loop is asyncio.get_running_loop() and reconnecting.exchange.connected:
                async with asyncio.timeout(self._timeout):
                    await reconnecting.flush()
        except (TimeoutError, BusClosedError):
            pass
        finally:
            await self._stop(reconnecting)

    def _publish(self, key: Hashable, line: str, limit: int | None) -> None:
        assert self._loop is not None, "it is open"
        self._reconnecting.exchange.publish(key, line, self._loop.time(), limit)
        self._reconnecting.wake()

    async def flush(self) -> None:
        """Wait until the server has acknowledged every key published so far, in any thread.

        While the server is down, this waits for it. To limit the wait, use ``asyncio.timeout()``.

        Raises:
            BusClosedError: the bus is closed, or was closed meanwhile.
            RuntimeError: called in another thread, event loop or process.
        """
        await super().flush()
        await self._reconnecting.flush()

    def statistics(self) -> BusStatistics:
        """Return a snapshot of the bus. May be called at any time, in any thread.

        In a forked child process, a bus of the parent is not connected; nor is one whose loop was closed.
        """
        exchange, connected = self._reconnecting.exchange, self._is_connected()
        is_alive = self._is_open or self._died is not None
        now = self._loop.time() if self._loop is not None and is_alive and not self._loop.is_closed() else -inf
        return BusStatistics(
            name=self.name,
            connected=connected,
            gaps=exchange.gaps,
            since_echo=now - exchange.echo.echoed_at if connected else None,
            outbox=len(exchange.outbox),
            outbox_age=max(0.0, now - exchange.outbox.oldest_at()),
            published=exchange.published,
            received=exchange.received,
            replayed=exchange.replayed,
            malformed=exchange.malformed,
            error=None if connected else self._why_not_connected(),
        )

    # inside

    def _new_reconnecting(self) -> Reconnecting:
        missed = None
        if self._listens and self.replays:
            missed = Missed(2 * self._pace.noticed(), partial(logger.warning, "bus %r: %s", self.name))
        exchange = Exchange(secrets.token_hex(8), self._targets, self._pace, missed, self._listens)
        open_link = partial(self._engine.open, self._channels)
        return Reconnecting(open_link, exchange, self._timeout, self._failed)

    def _failed(self, error: Exception) -> None:
        """Log, once a minute, why it cannot connect again."""
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.warning("bus %r is not connected, and tries again: %s", self.name, self._engine.explain(error))

    def _is_connected(self) -> bool:
        return self._reconnecting.exchange.connected and self._refusal(self._loop) is None

    async def _until_up(self, reconnecting: Reconnecting) -> None:
        try:
            await reconnecting.wait_until_up()
        except BusClosedError:
            raise
        except Exception as exc:
            raise BusConnectError(self._engine.explain(exc)) from exc

    def _why_not_connected(self) -> str | None:
        refusal, error = self._refusal(self._loop), self._reconnecting.error
        if refusal is not None and self._is_open:  # of another process, or of a loop that is closed
            return str(refusal)
        return self._engine.explain(error) if error is not None and self._is_open else self._died

    async def _stop(self, reconnecting: Reconnecting) -> None:
        """End *reconnecting* in bounded time, and drop its connections at once, even if this is cancelled."""
        if reconnecting is self._reconnecting:  # not of a later start()
            self._shut()
        task = await reconnecting.end()
        if task is not None:
            message = f"aiopurgatory: a task of {self!r} did not end when cancelled, and was abandoned"
            task.get_loop().call_exception_handler({"message": message, "task": task})

    def _ended(self, reconnecting: Reconnecting, task: asyncio.Task[None]) -> None:
        """Log the number of lost keys, and the reason if *task* ended otherwise than by aclose().

        It may be cancelled at the loop's end, or by mistake. The bus then stays open for observers, so that its metrics
        do not disappear.
        """
        reconnecting.stop()  # a task cancelled before its first step has not called it
        outbox = reconnecting.exchange.outbox
        if len(outbox):
            keys = f"{len(outbox)} keys that the server has not acknowledged"
            logger.warning("bus %r ended with %s: other processes may not check them", self.name, keys)
        if reconnecting is not self._reconnecting or not self._is_open or not reconnecting.was_up:
            return
        why = "was cancelled" if task.cancelled() else f"ended with {task.exception()!r}"
        self._died = f"the bus' task {why}, but not by aclose(): call aclose() and start() to connect again"
        self._is_open = False
        logger.warning("bus %r: %s", self.name, self._died)


def hear_data(bus: ServerBus, channel: str) -> None:
    """Have *bus* hear messages with data on *channel* as well. If it is open, it connects anew, which is a gap."""
    if channel in bus._channels:
        return
    bus._channels.append(channel)
    if bus._loop is not None and bus._refusal(bus._loop) is None:
        why = f"it also subscribes to {channel}"
        bus._loop.call_soon_threadsafe(bus._reconnecting.renew, why)  # logs are made anywhere
