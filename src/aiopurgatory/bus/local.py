"""A bus between the event loops of one process: no server, no task, and no gap."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable
from typing import Any, Final, final

from ..clock import running_loop
from ..handover import Handover
from .bus import TURN_BUDGET, Bus, BusStatistics
from .targets import Targets

#: Keys that wait for a loop that does not run. More are replaced by "check everything".
_MAX_KEYS: Final = 10_000


@final
class _Member:
    """One life of a LocalBus, on one event loop. Other threads call only put()."""

    __slots__ = ("_inbox", "_targets", "loop", "name", "published", "received")

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, targets: Targets) -> None:
        self.name: Final = name
        self.loop: Final = loop
        self.published = self.received = 0
        self._targets = targets
        self._inbox = Handover(TURN_BUDGET)

    def put(self, key: Hashable, limit: int | None) -> None:
        """Check *key* in the member's loop, soon. From any thread."""
        if len(self._targets):
            # Checks with a limit are not merged: their limits add up.
            entry = (key, limit, None if limit is None else object())
            self._inbox.put(_EVERYTHING if len(self._inbox) >= _MAX_KEYS else entry, self.loop, self._take)

    def _take(self, entry: Any) -> None:
        if self in _members:
            self.received += 1
            if entry is _EVERYTHING:
                self._targets.check_all()
            else:
                self._targets.check(entry[:1], entry[1])


#: In place of an entry of an inbox: check everything.
_EVERYTHING: Final = object()


#: The open members of all names, in the order of their starts. Each use is one step of a dict, so that threads and
#: signal handlers need no lock.
_members: Final[dict[_Member, None]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_members.clear)  # the loops are the parent's


@final
class LocalBus(Bus):
    """Checks keys in every event loop of this process that uses a LocalBus of the same *name*.

    For threads that each run a loop of their own, with purgatories of their own:

        def run() -> None:  # in each thread
            async def main() -> None:
                async with Purgatory("polls") as polls, LocalBus([polls]) as bus:
                    bus.publish(("orders", 7))  # checks the key here, and in the other threads

            asyncio.run(main())

    Each publish leads in every other loop with an open bus to a check of that key begun after it. There is no server,
    so nothing can be lost: when publish() returns, it has told every loop.

    Buses may be closed in any order. A loop that was closed without
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

    _member: _Member | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'open' if self._refusal(self._loop) is None else 'closed'}>"

    async def start(self) -> None:
        """Open the bus in the running loop, and check everything once. While it is open there, a call does nothing.

        Raises: RuntimeError: the bus is open in another loop, or was started before a fork.
        """
        loop = running_loop()
        if self._is_open_in(loop):
            return
        self._begin(loop)
        self._member = member = _Member(self.name, loop, self._targets)
        self._is_open = True
        try:
            _members[member] = None
            self._tell(lambda observer: observer.opened(self))
            self._targets.check_all()  # keys may have been published before
        except BaseException:
            self._shut()  # otherwise it would count as open, but hear or check nothing
            raise

    def _publish(self, key: Hashable, line: str, limit: int | None) -> None:
        sender = self._member
        assert sender is not None
        sender.published += 1
        self._targets.check((key,), limit)
        for member in _members.copy():
            if member.loop.is_closed():  # without aclose()
                _members.pop(member, None)
            elif member is not sender and member.name == sender.name:
                member.put(key, limit)

    def statistics(self) -> BusStatistics:
        """Return a snapshot of the bus. May be called at any time, in any thread.

        It is connected while it is open, its news is of now, and it has neither gaps nor an outbox. A key that was
        published again before the loop took it counts as received once.
        """
        member, refusal = self._member, self._refusal(self._loop)
        return BusStatistics(
            name=self.name,
            connected=refusal is None,
            since_echo=0.0 if refusal is None else None,
            published=0 if member is None else member.published,
            received=0 if member is None else member.received,
            error=str(refusal) if refusal is not None and self._is_open else None,
        )

    def _shut(self) -> None:
        if self._member is not None:
            _members.pop(self._member, None)
        super()._shut()
