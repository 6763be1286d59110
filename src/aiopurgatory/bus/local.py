"""A bus between the event loops of one process: no server, no task, and no gap."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable, Iterable
from types import TracebackType
from typing import Final, Self, final

from ..clock import running_loop
from ..core.kit import Observer, checked_observers
from ..handover import Handover
from .bus import BusStatistics
from .engine import CHANNEL, NOT_STARTED, BusClosedError, require_channel
from .keys import EVERY_KEY, encode
from .targets import Target, Targets

#: Seconds per loop iteration for keys from other threads.
_TURN_BUDGET: Final = 0.005
#: Keys that wait for a loop that does not run. More are replaced by "check everything".
_MAX_KEYS: Final = 10_000


@final
class _Member:
    """One life of a LocalBus, on one event loop. Other threads call only put()."""

    __slots__ = ("_inbox", "_targets", "is_open", "loop", "pid", "published", "received")

    def __init__(self, loop: asyncio.AbstractEventLoop, targets: Targets) -> None:
        self.loop: Final = loop
        self.pid: Final = os.getpid()
        self.published = self.received = 0
        self.is_open = True
        self._targets = targets
        self._inbox = Handover(_TURN_BUDGET)

    def is_alive(self) -> bool:
        return self.is_open and not self.loop.is_closed()

    def put(self, key: Hashable) -> None:
        """Check *key* in the member's loop, soon. From any thread."""
        if len(self._targets):
            self._inbox.put(_EVERYTHING if len(self._inbox) >= _MAX_KEYS else key, self.loop, self._take)

    def _take(self, key: Hashable) -> None:
        if not self.is_open:
            return
        self.received += 1
        if key is _EVERYTHING:
            self._targets.check_all()
        else:
            self._targets.check((key,))


#: Stands for every key. No key of a user is this object.
_EVERYTHING: Final = (EVERY_KEY, object())


@final
class _Members:
    """The open members of all names, for every thread. A tuple is replaced, not changed: put() takes no lock."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew. In the child of a fork, the loops are the parent's, and another thread may have held the lock."""
        self._by_name: dict[str, tuple[_Member, ...]] = {}
        # Reentrant: a signal handler may publish while its thread holds it.
        self._lock = threading.RLock()

    def join(self, name: str, member: _Member) -> None:
        with self._lock:
            self._by_name[name] = (*self._alive(name), member)

    def leave(self, name: str, member: _Member) -> None:
        """Idempotent. Members whose loops were closed without aclose() leave, too."""
        with self._lock:
            others = tuple(other for other in self._alive(name) if other is not member)
            if others:
                self._by_name[name] = others
            else:
                self._by_name.pop(name, None)

    def put(self, name: str, key: Hashable, sender: _Member) -> None:
        for member in self._by_name.get(name, ()):
            if member.loop.is_closed():
                self.leave(name, member)
            elif member is not sender:
                member.put(key)

    def _alive(self, name: str) -> list[_Member]:
        return [member for member in self._by_name.get(name, ()) if not member.loop.is_closed()]


_members: Final = _Members()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_members.forget)


class LocalBus:
    """Checks keys in every event loop of this process that uses a LocalBus of the same *name*.

    For threads that each run a loop of their own, with purgatories of their own:

        def run() -> None:  # in each thread
            async def main() -> None:
                async with Purgatory("polls") as polls, LocalBus([polls]) as bus:
                    bus.publish(("orders", 7))  # checks the key here, and in the other threads

            asyncio.run(main())

    Each publish leads in every other loop with an open bus to a check of that key begun after it. There is no server,
    so nothing can be lost: when publish() returns, it has told every loop.

    A bus belongs to the event loop that started it. Buses may be closed in any order. A loop that was closed without
    its bus, or that stands still, does not affect the others. Beyond 10,000 keys that wait for a loop, it checks
    everything instead.

    Args:
        targets: purgatories, long polls, and other objects with notify() and notify_all(), all of this loop. The bus
            notifies them of every key published here or in another loop. None (default): the bus only publishes.
        observers: called when the bus opens and closes, such as ``Metrics()`` (default: none).
        name: labels the bus in metrics and on the live page; buses of one name reach each other. 1 to 63 printable
            ASCII characters.

    Raises: TypeError, ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(
        self,
        targets: Iterable[Target] | None = None,
        *,
        observers: Iterable[Observer] = (),
        name: str = CHANNEL,
    ) -> None:
        self.name: Final = require_channel(name, "name")
        self._listens = targets is not None
        self._targets = Targets(() if targets is None else targets, self._report)
        self._observers = checked_observers(observers)
        self._member: _Member | None = None
        self._handover = Handover(_TURN_BUDGET)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'open' if self._why_closed() is None else 'closed'}>"

    async def start(self) -> None:
        """Open the bus in the running loop, and check everything once. While it is open there, a call does nothing.

        Raises: RuntimeError: the bus is open in another loop, or was started before a fork.
        """
        loop = running_loop()
        member = self._member
        if member is not None and member.is_alive():
            if member.loop is not loop or member.pid != os.getpid():
                raise RuntimeError(_why_not_here(member))
            return
        self._shut()
        # A new one, and a new handover: keys may still be under way to an earlier loop.
        self._member = member = _Member(loop, self._targets)
        self._handover = Handover(_TURN_BUDGET)
        try:
            _members.join(self.name, member)
            self._tell(lambda observer: observer.opened(self))
            self._targets.check_all()  # keys may have been published before
        except BaseException:
            self._shut()  # otherwise it would count as open, but hear or check nothing
            raise

    async def aclose(self) -> None:
        """Close the bus. It notifies its targets no more. A second call does nothing."""
        self._shut()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def publish(self, key: Hashable) -> None:
        """Check *key* here, and soon in every other loop. Call it once the change is visible to the others.

        Args: key: as for the other buses: a str, int, float, bool, None, bytes, UUID, or a tuple of these.

        Raises:
            TypeError, ValueError: *key* is of another type, or too long.
            BusClosedError: the bus is closed, or was never started.
            RuntimeError: called in another thread, event loop or process.

        Cost: 3 us, plus the check, plus 2 us and a wake-up for each other loop.
        """
        member = self._here()
        encode(key)
        member.published += 1
        self._targets.check((key,))
        _members.put(self.name, key, member)

    def publish_threadsafe(self, key: Hashable) -> None:
        """Same as publish(), from any thread. Many calls are merged into few wake-ups of the loop.

        Raises:
            TypeError, ValueError: as publish().
            BusClosedError: the bus is closed, or was never started. If it closes before the loop takes the key, the
                error goes to the event loop's exception handler.
        """
        encode(key)
        member, why = self._member, self._why_closed()
        if member is None or why is not None:
            raise BusClosedError(why)
        self._handover.put(key, member.loop, self.publish)

    async def flush(self) -> None:
        """Return at once: publish() has told every loop already. For code that also runs on the other buses.

        Raises:
            BusClosedError: the bus is closed, or was never started.
            RuntimeError: called in another thread, event loop or process.
        """
        self._here()

    def add(self, target: Target) -> None:
        """Notify *target*, too, from now on. A target that is there already is not added again.

        What was published before is not repeated: a new target that may have missed something must check everything.

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

        It is connected while it is open, its news is of now, and it has neither gaps nor an outbox. A key that was
        published again before the loop took it counts as received once.
        """
        member, why = self._member, self._why_closed()
        return BusStatistics(
            name=self.name,
            connected=why is None,
            gaps=0,
            since_echo=0.0 if why is None else None,
            outbox=0,
            outbox_age=0.0,
            published=0 if member is None else member.published,
            received=0 if member is None else member.received,
            replayed=0,
            malformed=0,
            error=why if member is not None and member.is_open else None,
        )

    def _here(self) -> _Member:
        """Return the member. Raises: BusClosedError, RuntimeError: it is closed, or of another loop or process."""
        member = self._member
        if member is None or not member.is_alive():
            raise BusClosedError(self._why_closed())
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not member.loop or member.pid != os.getpid():
            raise RuntimeError(_why_not_here(member))
        return member

    def _why_closed(self) -> str | None:
        member = self._member
        if member is None:
            return NOT_STARTED
        if not member.is_open:
            return "the bus is closed"
        if member.pid != os.getpid():
            return _why_not_here(member)
        return "the bus' event loop was closed without aclose() of the bus" if member.loop.is_closed() else None

    def _shut(self) -> None:
        """Idempotent. In a forked child, the bus is the parent's, and observers are not told."""
        member = self._member
        if member is not None and member.is_open:
            member.is_open = False
            _members.leave(self.name, member)
            if member.pid == os.getpid():
                self._tell(lambda observer: observer.closed(self))

    def _tell(self, tell: Callable[[Observer], object]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as exc:
                self._report(exc)

    def _report(self, exc: BaseException) -> None:
        if self._member is not None:
            message = f"aiopurgatory: a target or an observer of {self!r} raised"
            self._member.loop.call_exception_handler({"message": message, "exception": exc})


def _why_not_here(member: _Member) -> str:
    if member.pid != os.getpid():
        return "the bus was started before a fork: make and start another one in the child process"
    return "the bus belongs to another event loop; make one in each loop, or from here use publish_threadsafe(key)"
