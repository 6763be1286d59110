"""The public class of a bus: start, publish, flush and close, on an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Hashable, Iterable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from math import inf
from types import TracebackType
from typing import Final, Self

from ..arguments import require_seconds
from ..clock import running_loop
from ..core.kit import Observer, checked_observers
from ..handover import Handover
from .engine import CHANNEL, NOT_STARTED, BusClosedError, BusConnectError, Engine, require_channel
from .keys import encode
from .outbox import Outbox
from .reconnecting import Reconnecting
from .rules import Rules
from .targets import Target, Targets

logger = logging.getLogger("aiopurgatory")

#: Seconds per loop iteration for keys from other threads.
_TURN_BUDGET: Final = 0.005
#: Seconds to wait for a cancelled task to end, and how often to cancel it. A client library may lose a cancellation.
_PATIENCE: Final = 0.5
_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class BusStatistics:
    """A snapshot of a bus. Counts are since its last start.

    Args:
        name: the bus's name, which is also its channel.
        connected: whether it has received an echo of its own message since it last connected.
        gaps: how often messages may have been lost, because a subscription was lost or a message's number was missing.
            Each gap is followed by a check of every key, or of those missed if the server keeps them (``replay=``).
        since_echo: age in seconds of the bus's newest message that came back from the server, counted from its sending.
            The bus's news of other processes is as old. None if none came back since it last connected. If the bus only
            publishes, it is the age of the newest acknowledged message.
        outbox: keys that the server has not acknowledged, including keys replaced by "check everything". After such a
            replacement, repeated publishes of a key count, too.
        outbox_age: seconds since the oldest of these keys was published; 0.0 if there is none.
        published: keys given to publish().
        received: keys received from others, ``*`` included.
        replayed: those of them that were read after a gap.
        malformed: lines that are not keys, and messages that are too long. They are skipped.
        error: why it is not connected, with the remedy; None if it is connected, or was closed by aclose().
    """

    name: str
    connected: bool
    gaps: int
    since_echo: float | None
    outbox: int
    outbox_age: float
    published: int
    received: int
    replayed: int
    malformed: int
    error: str | None


class Bus:
    """Checks keys in every process that uses the same channel of the same server.

        async with Purgatory("polls") as polls, PostgresBus(dsn, [polls]) as bus:
            bus.publish(("orders", 7))  # instead of polls.check_and_complete(("orders", 7))

    While this process lives, every other process checks each published key after the publish. If a gap swallows the
    message, that process checks every key after the gap instead. A gap is noticed within 1.5 * heartbeat + timeout. A
    key may be checked more than once. If this process dies before flush() returns, its last keys may be lost.

    Make the change visible (commit) before you publish it. The bus carries only keys: no data, and no order.

    A bus belongs to the event loop that started it. From another thread, such as that of a ``def`` endpoint, call
    publish_threadsafe().

    Args:
        engine: the server.
        targets: purgatories, long polls, and other objects with notify() and notify_all(). The bus notifies them of
            every key published here or in another process. None: the bus only publishes, and hears nothing.
        heartbeat: seconds without a publish after which the bus sends a message to itself; default 5. Every process
            receives all of these: with 100 idle processes and 5 s, each receives 20 a second.
        timeout: seconds that the server may take to accept a connection, to acknowledge, and to send the echo;
            default 5.
        spread: seconds; default 0. After a gap, each process checks everything at a random time within them. Otherwise
            all do so at once when a server comes back, and may overload the database that they then read.
        observers: called when the bus opens and closes, such as ``Metrics()`` (default: none). If the bus's task is
            cancelled from outside, the bus stays open for observers, and its statistics give the reason.
        name: labels the bus in metrics and on the live page, and names its channel: 1 to 63 printable ASCII characters.

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
    ) -> None:
        require_seconds("heartbeat", heartbeat, 0.01, 3600.0)
        require_seconds("timeout", timeout, 0.01, 3600.0)
        require_seconds("spread", spread, 0.0, 3600.0)
        self._spread = spread
        self.name: Final = require_channel(name, "name")
        self._engine = engine
        self._observers = checked_observers(observers)
        self._timeout = timeout
        self._listens = targets is not None
        self._targets = Targets(() if targets is None else targets, self._report)
        self._heartbeat = heartbeat
        self._rules = self._new_rules()
        self._handover = Handover(_TURN_BUDGET)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._reconnecting: Reconnecting | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        #: Whether the observers count it as open. They still do after its task has ended by itself.
        self._is_observed = False
        #: Why its task has ended by itself.
        self._died: str | None = None

    def __repr__(self) -> str:
        state = "connected" if self._is_connected() else "disconnected" if self._is_open else "closed"
        return f"<{type(self).__name__} {self.name!r} {state} outbox={len(self._rules.outbox)} gaps={self._rules.gaps}>"

    # life

    async def start(self) -> None:
        """Connect, in the running loop. Return when the first echo has arrived.

        A call during another start() shares its outcome. Once connected, a call does nothing.

        Raises:
            BusConnectError: it cannot connect; the message has the reason and the remedy.
            BusClosedError: aclose() was called meanwhile, or the other start() was cancelled.
            RuntimeError: the bus runs in another loop, or was started before a fork.
        """
        loop = running_loop()
        if self._is_open:
            if self._loop is not loop or self._pid != os.getpid():
                raise RuntimeError(self._why_not_here())
            if self._reconnecting is not None:
                await self._until_up(self._reconnecting)
            return
        self._shut()
        self._loop, self._pid, self._died = loop, os.getpid(), None
        # New objects, because the task of an earlier start may still be ending.
        self._rules = self._new_rules()
        self._handover = Handover(_TURN_BUDGET)
        self._reconnecting = reconnecting = Reconnecting(self._engine, self._rules, self._timeout)
        # In an empty context: a request may call this, and the bus lives longer.
        self._task = task = Context().run(self._begin, loop, reconnecting)
        self._is_open = self._is_observed = True
        try:
            self._tell(lambda observer: observer.opened(self))
            await self._until_up(reconnecting)
        except BaseException:
            await self._stop(task, reconnecting)
            raise

    async def aclose(self) -> None:
        """Flush for up to ``timeout`` seconds if the bus is connected, then disconnect.

        Ends within ``timeout`` + 2 s, even if the server does not respond. Keys that are not acknowledged by then are
        dropped, and a warning is logged. A second call does nothing. In a forked child process, it leaves the
        connections to the parent.
        """
        task, reconnecting, self._died = self._task, self._reconnecting, None
        is_open = self._is_open
        self._shut()
        if not is_open or task is None or reconnecting is None:
            return
        if self._pid != os.getpid():  # closing the sockets would remove them from the epoll shared with the parent
            return
        try:
            if self._loop is asyncio.get_running_loop() and self._rules.connected:
                async with asyncio.timeout(self._timeout):
                    await reconnecting.flush()
        except (TimeoutError, BusClosedError):
            pass
        finally:
            await self._stop(task, reconnecting)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    # use

    def publish(self, key: Hashable) -> None:
        """Check *key* here, and soon in every other process. Call it once the change is visible to the others.

        Never waits. While the server is down, the key is kept and sent later. More than 10,000 kept keys are replaced
        by a single "check everything".

        Args: key: a str, int, float, bool, None, bytes, UUID, or a tuple of these; at most 7,800 bytes as JSON.

        Raises:
            TypeError, ValueError: *key* is of another type, or too long.
            BusClosedError: the bus is closed, or was never started.
            RuntimeError: called in another thread, event loop or process.

        Cost: 2 to 4 us, plus the check.
        """
        reconnecting, now = self._here()
        self._rules.publish(key, encode(key), now)
        reconnecting.wake()

    def publish_threadsafe(self, key: Hashable) -> None:
        """Same as publish(), from any thread. Many calls are merged into few wake-ups of the loop.

        Raises:
            TypeError, ValueError: as publish().
            BusClosedError: the bus is closed, or was never started. If it closes before the loop takes the key, the
                error goes to the event loop's exception handler.
        """
        encode(key)
        loop = self._loop
        if not self._is_open or loop is None or loop.is_closed():
            raise BusClosedError(self._why_closed())
        self._handover.put(key, loop, self.publish)

    async def flush(self) -> None:
        """Wait until the server has acknowledged every key published so far.

        While the server is down, this waits for it. To limit the wait, use ``asyncio.timeout()``.

        Raises:
            BusClosedError: the bus is closed, or was closed meanwhile.
            RuntimeError: called in another thread, event loop or process.
        """
        reconnecting, _ = self._here()
        await reconnecting.flush()

    def add(self, target: Target) -> None:
        """Notify *target*, too, from now on. A target that is there already is not added again.

        Earlier publishes are not repeated: a new target that may have missed something must check everything.

        Raises:
            TypeError: *target* lacks notify() or notify_all().
            RuntimeError: the bus only publishes.
        """
        if not self._listens:
            raise RuntimeError("the bus only publishes: make it with targets, such as [] to add them later")
        self._targets.add(target)

    def remove(self, target: Target) -> None:
        """Notify *target* no more. It need not be there."""
        self._targets.remove(target)

    def statistics(self) -> BusStatistics:
        """Return a snapshot of the bus. May be called at any time, in any thread.

        In a forked child process, a bus of the parent is not connected.
        """
        rules, connected = self._rules, self._is_connected()
        is_alive = self._is_open or self._died is not None
        now = self._loop.time() if self._loop is not None and is_alive and not self._loop.is_closed() else -inf
        return BusStatistics(
            name=self.name,
            connected=connected,
            gaps=rules.gaps,
            since_echo=now - rules.echo.echoed_at if connected else None,
            outbox=len(rules.outbox),
            outbox_age=max(0.0, now - rules.outbox.oldest_at()),
            published=rules.published,
            received=rules.received,
            replayed=rules.replayed,
            malformed=rules.malformed,
            error=None if connected else self._why_not_connected(),
        )

    # inside

    def _new_rules(self) -> Rules:
        fan = self._targets
        origin = secrets.token_hex(8)
        replays = getattr(self._engine, "replays", False)  # most engines have no such attribute
        return Rules(
            origin,
            fan.check,
            fan.check_all,
            self._heartbeat,
            self._timeout,
            spread=self._spread,
            replays=replays and self._listens,
            listens=self._listens,
        )

    def _begin(self, loop: asyncio.AbstractEventLoop, reconnecting: Reconnecting) -> asyncio.Task[None]:
        run = reconnecting.run()
        try:
            task = loop.create_task(run, name="aiopurgatory bus")
        except BaseException:
            run.close()
            raise
        task.add_done_callback(partial(self._ended, self._rules.outbox, reconnecting))
        return task

    def _is_connected(self) -> bool:
        return self._rules.connected and self._is_open and self._pid == os.getpid()

    async def _until_up(self, reconnecting: Reconnecting) -> None:
        try:
            await reconnecting.wait_until_up()
        except BusClosedError:
            raise
        except Exception as exc:
            raise BusConnectError(self._engine.explain(exc)) from exc

    def _here(self) -> tuple[Reconnecting, float]:
        """Return the link to wake, and the time.

        Raises: BusClosedError, RuntimeError: the bus is closed, or belongs to another loop, thread or process.
        """
        if not self._is_open or self._reconnecting is None:
            raise BusClosedError(self._why_closed())
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None or loop is not self._loop:
            raise RuntimeError(self._why_not_here())
        return self._reconnecting, loop.time()

    def _why_closed(self) -> str:
        if self._died is not None:
            return self._died
        return "the bus is closed" if self._reconnecting else NOT_STARTED

    def _why_not_connected(self) -> str | None:
        if self._is_open and self._pid != os.getpid():
            return self._why_not_here()
        error = self._reconnecting.error if self._reconnecting is not None and self._is_open else None
        return self._died if error is None else self._engine.explain(error)

    def _why_not_here(self) -> str:
        if self._pid != os.getpid():
            return "the bus was started before a fork: make and start another one in the child process"
        return "the bus belongs to another event loop; from another thread, use publish_threadsafe(key)"

    def _report(self, exc: BaseException) -> None:
        if self._loop is not None:
            message = f"aiopurgatory: a target or an observer of {self!r} raised"
            self._loop.call_exception_handler({"message": message, "exception": exc})

    async def _stop(self, task: asyncio.Task[None], reconnecting: Reconnecting) -> None:
        """End *task* in bounded time. Its connections are dropped before the first await, even if this is cancelled."""
        if task is self._task:  # not of a later start()
            self._shut()
        reconnecting.stop()
        for _ in range(_ATTEMPTS):
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=_PATIENCE)
            if done:
                return
        message = f"aiopurgatory: a task of {self!r} did not end when cancelled, and was abandoned"
        task.get_loop().call_exception_handler({"message": message, "task": task})

    def _ended(self, outbox: Outbox, reconnecting: Reconnecting, task: asyncio.Task[None]) -> None:
        """Log the number of lost keys, and the reason if *task* ended otherwise than by aclose().

        It may be cancelled at the loop's end, or by mistake. The bus then stays open for observers, so that its metrics
        do not disappear.
        """
        reconnecting.stop()  # a task cancelled before its first step has not called it
        if len(outbox):
            keys = f"{len(outbox)} keys that the server has not acknowledged"
            logger.warning("bus %r ended with %s: other processes may not check them", self.name, keys)
        if task is not self._task or not self._is_open or not reconnecting.was_up():
            return
        why = "was cancelled" if task.cancelled() else f"ended with {task.exception()!r}"
        self._died = f"the bus' task {why}, but not by aclose(): call aclose() and start() to connect again"
        self._is_open = False
        logger.warning("bus %r: %s", self.name, self._died)

    def _shut(self) -> None:
        """Count the bus as closed from here on. Idempotent."""
        self._is_open = False
        if self._is_observed:
            self._is_observed = False
            if self._pid == os.getpid():  # in a forked child, the bus is the parent's
                self._tell(lambda observer: observer.closed(self))

    def _tell(self, tell: Callable[[Observer], object]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as exc:
                self._report(exc)
