"""The rules of a bus: what to send, receive and check so that no operation waits for a change it missed. No I/O.

R1 After every confirmed subscription, the first included, everything is checked: earlier messages were not received.
R2 A key leaves the outbox when the server has acknowledged it. Keys in flight are sent again after a break. A key that
   is published while it is in flight is sent again.
R3 A process must receive its own messages, sent on the other connection. After a heartbeat without one, it sends a
   probe. A missing echo or acknowledgement within the timeout is a gap: the link is given up, and everything is
   checked. The bus is up after its first echo.
R4 The bus reconnects by itself, after growing and partly random pauses.
R5 The outbox is a bounded dict of keys, so a repeated key is sent once. Over its bound it collapses into `*`: check
   everything, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, final

from .keys import EVERY_KEY, MAX_MESSAGE, MalformedError, decode, decode_all, pack

#: The most keys in the outbox before it collapses.
MAX_OUTBOX: Final = 10_000
#: Characters of keys to send before the next acknowledgement.
MAX_BATCH: Final = 250_000
#: Seconds between two attempts to connect: the first pause, which doubles, and the longest.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0


class Outbox:
    """Keys that the server has not acknowledged, in the order in which they were published (R2, R5)."""

    __slots__ = ("_in_flight", "_most", "_serial", "_waiting")

    def __init__(self, most: int = MAX_OUTBOX) -> None:
        self._most: Final = most
        #: For each key its serial number and its line. The numbers rise along both dicts.
        self._waiting: dict[Hashable, tuple[int, str]] = {}
        self._in_flight: dict[Hashable, tuple[int, str]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def put(self, key: Hashable, line: str) -> None:
        # Others may have checked a key in flight before its state changed again, so it is sent once more.
        if key in self._waiting or _All in self._waiting:
            return
        self._serial += 1
        self._waiting[key] = (self._serial, line)
        if len(self) > self._most:
            self._collapse()

    def take(self) -> list[str]:
        """Move the next keys in flight. Returns: the lines in flight."""
        size = 0
        for key, entry in self._waiting.items():
            if size > MAX_BATCH:
                break
            self._in_flight[key] = entry
            size += len(entry[1])
        for key in self._in_flight:
            del self._waiting[key]
        return [line for _, line in self._in_flight.values()]

    def acknowledge(self) -> None:
        """Drop the keys in flight: the server has them."""
        self._in_flight.clear()

    def put_back(self) -> None:
        """Queue the keys in flight again: the link broke, and they may not have arrived."""
        waiting, self._waiting = self._waiting, self._in_flight
        for key, entry in waiting.items():
            self._waiting.setdefault(key, entry)  # the older number: flush() must not pass it
        self._in_flight = {}
        if _All in self._waiting:
            self._collapse()

    def clear(self) -> None:
        self._waiting.clear()
        self._in_flight.clear()

    def mark(self) -> int:
        """The serial number of the last key."""
        return self._serial

    def acknowledged_up_to(self) -> float:
        """The highest mark() up to which every key is acknowledged; infinity if all are."""
        for entries in (self._in_flight, self._waiting):
            for serial, _ in entries.values():
                return serial - 1
        return inf

    def _collapse(self) -> None:
        first = next(iter(self._waiting.values()))[0]
        self._waiting = {_All: (first, EVERY_KEY)}


@final
class _All:
    """Stands for every key in a collapsed outbox."""


class Echo:
    """Tracks which acknowledgements and echoes the server owes (R3). Times are in seconds."""

    __slots__ = ("_asked_at", "_heartbeat", "_sent_at", "_timeout", "heard_at")

    def __init__(self, heartbeat: float, timeout: float) -> None:
        self._heartbeat: Final = heartbeat
        self._timeout: Final = timeout
        self.heard_at = -inf
        #: When the first message after the last echo was sent, and when the unacknowledged batch was.
        self._asked_at = inf
        self._sent_at = inf

    def reset(self) -> None:
        """Start over for a new link: nothing is owed, and a probe is due at once."""
        self.heard_at, self._asked_at, self._sent_at = -inf, inf, inf

    def sent(self, now: float) -> None:
        self._asked_at = min(self._asked_at, now)
        self._sent_at = now

    def acknowledged(self) -> None:
        self._sent_at = inf

    def is_unacknowledged(self) -> bool:
        return self._sent_at < inf

    def heard(self, now: float) -> None:
        self.heard_at, self._asked_at = now, inf

    def is_probe_due(self, now: float) -> bool:
        return self._asked_at == inf and now >= self.heard_at + self._heartbeat

    def is_overdue(self, now: float) -> bool:
        return now >= min(self._asked_at, self._sent_at) + self._timeout

    def next_at(self) -> float:
        """When a probe is due or an answer is overdue."""
        overdue = min(self._asked_at, self._sent_at) + self._timeout
        return overdue if overdue < inf else self.heard_at + self._heartbeat


class Rules:
    """One process's side of a bus.

    Args:
        check: called with the keys to check here.
        check_all: called to check every key here.
        heartbeat: seconds without an echo after which a probe is sent.
        timeout: seconds that the server may take to acknowledge and to echo.
        max_outbox: the most keys in the outbox before it collapses.
    """

    def __init__(
        self,
        check: Callable[[Sequence[Hashable]], object],
        check_all: Callable[[], object],
        heartbeat: float,
        timeout: float,
        max_outbox: int = MAX_OUTBOX,
    ) -> None:
        self._check: Final = check
        self._check_all: Final = check_all
        self.outbox: Final = Outbox(max_outbox)
        self.echo: Final = Echo(heartbeat, timeout)
        self._origin = ""
        self._link = 0
        #: Whether the subscription is confirmed, and whether its first echo has arrived.
        self._confirmed = False
        self.connected = False
        self.gaps = self.published = self.received = self.malformed = 0

    def begin(self, origin: str) -> None:
        """Start, or start again. Args: origin: a new id that no other process has, not even a fork."""
        self._origin = origin
        self.outbox.clear()
        self.gaps = self.published = self.received = self.malformed = 0

    def publish(self, key: Hashable, line: str) -> None:
        self.published += 1
        self.outbox.put(key, line)
        self._check((key,))

    def confirmed(self) -> None:
        """Note that the server has confirmed the subscription of a new link (R1)."""
        self._confirmed = True
        self._link += 1
        self.echo.reset()
        self._check_all()

    def messages(self, now: float) -> list[str]:
        """Return what to send now: nothing while the last batch is unacknowledged."""
        if self.echo.is_unacknowledged():
            return []
        lines = self.outbox.take()
        if not lines and not self.echo.is_probe_due(now):
            return []
        self.echo.sent(now)
        return pack(f"@{self._origin} {self._link}", lines)

    def acknowledged(self) -> None:
        """Note that the server has the last messages()."""
        self.outbox.acknowledge()
        self.echo.acknowledged()

    def hear(self, message: str, now: float) -> None:
        """Handle a message from the channel."""
        lines = message.split("\n")
        is_of_a_bus = message.startswith("@")
        if is_of_a_bus:
            origin, _, link = lines.pop(0)[1:].partition(" ")
            if origin == self._origin:
                self._hear_echo(link, now)
                return
        if len(message) > MAX_MESSAGE:  # not from a bus, and slow to decode
            self.malformed += 1
            return
        if not (is_of_a_bus and self._hear_keys(lines)):
            for line in lines:
                self._hear_line(line.strip())

    def broken(self) -> None:
        """Note that the link is given up, for whatever reason (R2, R3)."""
        was_confirmed = self._confirmed
        self.closed()
        if was_confirmed:
            self.gaps += 1
            self._check_all()

    def closed(self) -> None:
        """Note that the link is given up because the bus closes: this is not a gap."""
        self.outbox.put_back()
        self.connected = self._confirmed = False

    def _hear_echo(self, link: str, now: float) -> None:
        """Note an echo of this link; one of an earlier link says nothing. Its keys were checked when published."""
        if self._confirmed and link == str(self._link):
            self.echo.heard(now)
            self.connected = True

    def _hear_keys(self, lines: list[str]) -> bool:
        """Check the keys on *lines*. Returns: False if a line is not a key."""
        try:
            keys = decode_all(lines)
        except MalformedError:
            return False
        self.received += len(keys)
        self._check(keys)
        return True

    def _hear_line(self, line: str) -> None:
        if line == EVERY_KEY:
            self.received += 1
            self._check_all()
        elif line:
            try:
                key = decode(line)
            except MalformedError:
                self.malformed += 1
                return
            self.received += 1
            self._check((key,))


def pause(attempt: int, chance: float) -> float:
    """Seconds to wait before the connection is tried again (R4).

    Args:
        attempt: 1 for the first one after a link that was up.
        chance: a random number from 0 to 1, so that processes don't return in a herd.
    """
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt - 1, 10)) * (0.5 + chance / 2))
