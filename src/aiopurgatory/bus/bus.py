"""What all buses have in common: their targets and observers, and the loop that they belong to."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ..core.kit import Observer, checked_limit, checked_observers
from ..handover import Handover
from ..lifecycle import Starting
from .engine import CHANNEL, NOT_STARTED, BusClosedError, require_channel
from .keys import encode
from .targets import Target, Targets, tell_each

#: Seconds per loop iteration for keys from other threads.
TURN_BUDGET: Final = 0.005


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
            replacement, repeated publishes of a key also count.
        outbox_age: seconds since the oldest of these keys was published; 0.0 if there is none.
        published: keys given to publish().
        received: keys received from others, ``*`` included.
        replayed: how many of them were read after a gap.
        malformed: lines that are not keys, and messages that are too long. They are skipped.
        error: why it is not connected, with the remedy; None if it is connected, or was closed by aclose().
    """

    name: str
    connected: bool
    gaps: int = 0
    since_echo: float | None = None
    outbox: int = 0
    outbox_age: float = 0.0
    published: int = 0
    received: int = 0
    replayed: int = 0
    malformed: int = 0
    error: str | None = None


class Bus(Starting):
    """Checks keys in every process, or every event loop, that uses a bus of the same kind and name.

        async with Purgatory("polls") as polls, PostgresBus(dsn, [polls]) as bus:
            bus.publish(("orders", 7))  # instead of polls.check_and_complete(("orders", 7))

    Make the change visible (commit) before you publish it. Targets get only keys: no data, and no order. A log that
    shares the bus sends its events to other logs only.

    A bus belongs to the event loop that started it. From another thread, such as a ``def`` endpoint's, call
    publish_threadsafe().

    Args:
        targets: purgatories, long polls, and other objects with notify() and notify_all(). The bus notifies them of
            every key published here or elsewhere. None: the bus only publishes, and hears nothing.
        observers: called when the bus opens and closes, such as ``Metrics()`` (default: none).
        name: labels the bus in metrics and on the live page, and names its channel: 1 to 63 printable ASCII characters.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(
        self, targets: Iterable[Target] | None = None, *, observers: Iterable[Observer] = (), name: str = CHANNEL
    ) -> None:
        self.name: Final = require_channel(name, "name")
        self._listens = targets is not None
        self._targets = Targets(() if targets is None else targets, self._report)
        self._observers = checked_observers(observers)
        self._handover = Handover(TURN_BUDGET)
        #: Of the newest start.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._is_open = False
        #: Why it has ended by itself. The observers count it as open until aclose().
        self._died: str | None = None

    # life

    @abstractmethod
    async def start(self) -> None:
        """Open the bus in the running loop. While it is open there, a call does nothing.

        Raises: RuntimeError: the bus runs in another loop, or was started before a fork.
        """

    async def aclose(self) -> None:
        """Close the bus. It notifies its targets no more. A second call does nothing."""
        self._shut()

    # use

    def publish(self, key: Hashable, *, limit: int | None = None) -> None:
        """Check *key* here, and soon everywhere else. Call it once the change is visible to the others. Never waits.

        While a server is down, the key is kept and sent later. More than 10,000 kept keys are replaced by a single
        "check everything".

        Args:
            key: a str, int, float, bool, None, bytes, UUID, or a tuple of these; at most 7,800 bytes as JSON.
            limit: as for notify(), in each process and each event loop: ``limit=1`` wakes one of the workers that wait
                in each. After a gap, and if a process cannot keep up, more may be woken. None (default): no limit.

        Raises:
            TypeError, ValueError: *key* is of another type, or too long, or *limit* is no int >= 1.
            BusClosedError: the bus is closed, or was never started.
            RuntimeError: called in another thread, event loop or process.

        Cost: 2 to 4 us, plus the check. Of a LocalBus: in addition, 2 us and a wake-up for each other loop.
        """
        self._check_here()
        self._publish(key, encode(key), None if limit is None else checked_limit(limit))

    def publish_threadsafe(self, key: Hashable, *, limit: int | None = None) -> None:
        """Same as publish(), from any thread. Many calls are merged into few wake-ups of the loop.

        Calls for a key without a limit are merged into one; those with a limit are not.

        Raises:
            TypeError, ValueError: as publish().
            BusClosedError: the bus is closed, or was never started. If it closes before the loop takes the key, the
                error goes to the event loop's exception handler.
            RuntimeError: called in a forked child process.
        """
        encode(key)
        checked_limit(limit)
        refusal = self._refusal(self._loop)
        if refusal is not None:
            raise refusal
        assert self._loop is not None, "it is open"
        self._handover.put((key, limit, limit and object()), self._loop, self._publish_put)

    def _publish_put(self, put: Any) -> None:
        if not isinstance(put, asyncio.Future):
            self.publish(put[0], limit=put[1])
        elif not put.done():
            put.set_result(None)

    async def flush(self) -> None:
        """Wait until every key published so far, in any thread, has been passed on.

        Raises:
            BusClosedError: the bus is closed, or was closed meanwhile.
            RuntimeError: called in another thread, event loop or process.
        """
        self._check_here()
        loop = asyncio.get_running_loop()
        taken = loop.create_future()  # behind the keys of publish_threadsafe()
        self._handover.put(taken, loop, self._publish_put)
        await taken
        self._check_here()

    def add(self, target: Target) -> None:
        """Also notify *target* from now on. A target that is there already is not added again.

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

    @abstractmethod
    def statistics(self) -> BusStatistics:
        """Return a snapshot of the bus. May be called at any time, in any thread."""

    # for subclasses

    @abstractmethod
    def _publish(self, key: Hashable, line: str, limit: int | None) -> None:
        """Do what publish() says. *line*: the encoded *key*."""

    def _is_open_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether start() in *loop* has nothing to do. Raises: RuntimeError: it is open elsewhere."""
        refusal = self._refusal(loop)
        if isinstance(refusal, RuntimeError):
            raise refusal
        return refusal is None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """A start in *loop* begins. It may still fail: then the bus stays closed."""
        self._shut()
        self._loop, self._pid = loop, os.getpid()
        self._handover = Handover(TURN_BUDGET)  # keys may still be under way to an earlier loop

    def _check_here(self) -> None:
        """Raises: BusClosedError, RuntimeError: the bus is closed, or belongs to another loop, thread or process."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        refusal = self._refusal(loop)
        if refusal is not None:
            raise refusal

    def _refusal(self, loop: asyncio.AbstractEventLoop | None) -> Exception | None:
        """Return why the bus cannot be used in *loop*: it is closed, or open elsewhere. None: it is open there."""
        if not self._is_open or self._loop is None:
            return BusClosedError(self._died or (NOT_STARTED if self._loop is None else "the bus is closed"))
        if self._loop.is_closed():
            return BusClosedError("the bus' event loop was closed without aclose() of the bus")
        if self._pid != os.getpid():
            return RuntimeError("the bus was started before a fork: make and start another one in the child process")
        if loop is not self._loop:
            return RuntimeError(
                "the bus belongs to another event loop; from another thread, use publish_threadsafe(key)"
            )
        return None

    def _shut(self) -> None:
        """Count the bus as closed from here on. Idempotent. In a forked child, the bus is the parent's."""
        is_observed = self._is_open or self._died is not None
        self._is_open, self._died = False, None
        if is_observed and self._pid == os.getpid():
            self._tell(lambda observer: observer.closed(self))

    def _tell(self, tell: Callable[[Observer], object]) -> None:
        tell_each(self._observers, tell, self._report)

    def _report(self, exc: BaseException) -> None:
        if self._loop is not None:
            message = f"aiopurgatory: a target or an observer of {self!r} raised"
            self._loop.call_exception_handler({"message": message, "exception": exc})
