"""The rules of a bus: what to send, receive and check so that no operation waits for a change it missed. No I/O.

R1 After every confirmed subscription, the first included, everything is checked: earlier messages were not received.
R2 A key leaves the outbox when the server has acknowledged it. Keys in flight are sent again after a break. A key that
   is published while it is in flight is sent again.
R3 A process must receive its own messages, sent on the other connection. It sends one at least once per heartbeat. Each
   must be acknowledged, and its echo received, within the timeout. Otherwise that is a gap: the link is given up, and
   everything is checked. Messages are numbered, so that an echo answers no message sent later. The bus is up after its
   first echo.
R4 The bus reconnects by itself, after partly random pauses. They grow with each break, and shrink with the time that a
   link was up.
R5 The outbox is a bounded dict of keys, so a repeated key is sent once. Over its bound it collapses into `*`: check
   everything, everywhere.
R6 A number missing among the messages of another process is a gap, too: everything is checked. The numbers of a link
   begin after the last acknowledged one of the link before.
R7 A message from the channel costs a bounded time. Checks of everything that messages cause are at least SPACING apart.
R8 The numbers of a process begin at 1. A process first heard with a higher one may have sent messages that were lost:
   that is a gap. Soon after a subscription it is not, since most processes are first heard then: all of these together
   have everything checked once, when the time in which a gap is to be noticed has passed since the subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final

from .keys import EVERY_KEY, MAX_MESSAGE, MalformedError, decode, decode_all, pack
from .outbox import MAX_OUTBOX, Outbox

#: Malformed lines after which the rest of a message is skipped.
MAX_MALFORMED: Final = 10
#: Seconds between two checks of everything that were asked for by messages.
SPACING: Final = 0.25
#: The most processes whose last message is remembered.
MAX_ORIGINS: Final = 1_000


class Echo:
    """Tracks which acknowledgements and echoes the server owes (R3). Times are in seconds."""

    __slots__ = (
        "_acknowledged",
        "_heartbeat",
        "_number",
        "_sent_at",
        "_timeout",
        "_unacknowledged_since",
        "_unechoed",
        "echoed_at",
    )

    def __init__(self, heartbeat: float, timeout: float) -> None:
        self._heartbeat: Final = heartbeat
        self._timeout: Final = timeout
        #: For each batch whose echo is missing: the number of its last message, and when it was sent or due.
        self._unechoed: deque[tuple[int, float]] = deque()
        self._number = self._acknowledged = 0
        self.reset()

    def reset(self) -> None:
        """Start over for a new link: nothing is owed, and a probe is due at once."""
        self._unechoed.clear()
        #: Goes on from the last link's: if its last messages did not reach everybody, a number is missing.
        self._number = self._acknowledged
        self._sent_at = -inf
        self._unacknowledged_since = inf
        #: When the newest message that came back was sent.
        self.echoed_at = -inf

    def next_number(self) -> int:
        """The number of the next message."""
        return self._number + 1

    def sent(self, count: int, now: float) -> None:
        self._number += count
        # A message that had to wait for the last acknowledgement counts from when it was due, so that a slow one does
        # not put off the question. It gets 1.5 heartbeats at least: an acknowledgement in time, however late the loop
        # reads it, leaves as much. The cost: with a heartbeat below the timeout, acknowledgement and echo together may
        # take only the promised 1.5 * heartbeat + timeout, not twice the timeout.
        slack = 1.5 * self._heartbeat
        due = max(self._sent_at + slack, now - self._timeout + slack)
        self._unechoed.append((self._number, min(now, due) if self._sent_at > -inf else now))
        self._sent_at = self._unacknowledged_since = now

    def acknowledged(self) -> None:
        self._unacknowledged_since = inf
        self._acknowledged = self._number

    def is_acknowledgement_overdue(self, now: float) -> bool:
        return now >= self._unacknowledged_since + self._timeout

    def is_unacknowledged(self) -> bool:
        return self._unacknowledged_since < inf

    def heard(self, number: int) -> None:
        """Note the echo of a message. The last one of a batch answers it, and every earlier batch."""
        while self._unechoed and self._unechoed[0][0] <= number <= self._number:
            self.echoed_at = self._unechoed.popleft()[1]

    def is_probe_due(self, now: float) -> bool:
        return now >= self._probe_at()

    def is_overdue(self, now: float) -> bool:
        return now >= self._overdue_at()

    def next_at(self) -> float:
        """When a probe is due or an answer is overdue."""
        return min(self._probe_at(), self._overdue_at())

    def _probe_at(self) -> float:
        # Counted from the last message, not from its echo: echoes that come later and later must not put it off.
        return inf if self.is_unacknowledged() else self._sent_at + self._heartbeat

    def _overdue_at(self) -> float:
        unechoed_since = self._unechoed[0][1] if self._unechoed else inf
        return min(unechoed_since, self._unacknowledged_since) + self._timeout


class Arrivals:
    """Notices missing numbers among the messages of each process (R6, R8).

    Args: settling: seconds after a subscription within which every other process is heard.
    """

    def __init__(self, settling: float) -> None:
        self._settling: Final = settling
        self._settled_at = inf
        #: For each origin: its last link, and the last number there.
        self._last: dict[str, tuple[int, int]] = {}

    def reset(self, origin: str, link: int, number: int, now: float) -> None:
        """Start over for a new link, the own one: what others have sent before is not known."""
        self._last = {origin: (link, number)}
        self._settled_at = now + self._settling

    def gap_at(self, origin: str, link: int, number: int, now: float) -> float:
        """Note a message. Returns: when to check everything, as an earlier one may be missing; infinity if none is."""
        last = self._last.get(origin)
        if last is None:
            if len(self._last) >= MAX_ORIGINS:  # most have ended; for those that have not, all is as after reset()
                self._last.clear()
                self._settled_at = now + self._settling
            self._last[origin] = link, number
            return self._settled_at if number > 1 else inf
        if (link, number) <= last:  # repeated, or late
            return inf
        self._last[origin] = link, number
        return now if number > last[1] + 1 else inf  # a new link repeats those that the server has not acknowledged


class Rules:
    """One process's side of a bus, from its start to its close.

    Args:
        origin: an id that no other process and no other start has, not even in a fork.
        check: called with the keys to check here.
        check_all: called to check every key here.
        heartbeat: seconds without a message of this process after which it sends a probe.
        timeout: seconds that the server may take to acknowledge and to echo.
        max_outbox: the most keys in the outbox before it collapses.
    """

    def __init__(
        self,
        origin: str,
        check: Callable[[Sequence[Hashable]], object],
        check_all: Callable[[], object],
        heartbeat: float,
        timeout: float,
        max_outbox: int = MAX_OUTBOX,
    ) -> None:
        self._origin: Final = origin
        self._check: Final = check
        self._check_all: Final = check_all
        self.outbox: Final = Outbox(max_outbox)
        self.echo: Final = Echo(heartbeat, timeout)
        self._arrivals: Final = Arrivals(1.5 * heartbeat + timeout)
        self._link = 0
        #: Whether the subscription is confirmed, and whether its first echo has arrived.
        self._confirmed = False
        self.connected = False
        #: When a message last had everything checked, and when it will have the next time.
        self._all_checked_at = -inf
        self._all_due_at = inf
        self.gaps = self.published = self.received = self.malformed = 0

    def publish(self, key: Hashable, line: str, now: float) -> None:
        self.published += 1
        self.outbox.put(key, line, now)
        self._check((key,))

    def confirmed(self, now: float) -> None:
        """Note that the server has confirmed the subscription of a new link (R1)."""
        self._confirmed = True
        self._link += 1
        self.echo.reset()
        self._arrivals.reset(self._origin, self._link, self.echo.next_number() - 1, now)
        self._check_everything()

    def messages(self, now: float) -> list[str]:
        """Return what to send now: nothing while the last batch is unacknowledged."""
        if self.echo.is_unacknowledged():
            return []
        lines = self.outbox.take()
        if not lines and not self.echo.is_probe_due(now):
            return []
        messages = pack(f"@{self._origin} {self._link}", self.echo.next_number(), lines)
        self.echo.sent(len(messages), now)
        return messages

    def acknowledged(self) -> None:
        """Note that the server has the last messages()."""
        self.outbox.acknowledge()
        self.echo.acknowledged()

    def hear(self, message: str, now: float) -> None:
        """Handle a message from the channel."""
        if len(message) > MAX_MESSAGE:  # not from a bus, and slow to read
            self.malformed += 1
        elif message.startswith("@"):
            head, _, body = message.partition("\n")
            origin, link, number = _parse(head)
            if number and self._confirmed:
                self._notice(self._arrivals.gap_at(origin, link, number, now), now)
            if origin == self._origin:
                self._hear_echo(link, number)
            elif body and not self._hear_keys(body.split("\n")):
                self._hear_lines(body, now, True)
        else:
            self._hear_lines(message, now, False)

    def next_at(self) -> float:
        """When tick() must be called, at the latest. Any other call may change it."""
        return min(self.echo.next_at() if self._confirmed else inf, self._all_due_at)

    def tick(self, now: float) -> None:
        """Check everything if that is due. Probes are sent by messages(); see Echo for what is overdue."""
        if now >= self._all_due_at:
            self._all_checked_at = now
            self._check_everything()

    def broken(self) -> None:
        """Note that the link is given up, for whatever reason (R2, R3)."""
        was_confirmed = self._confirmed
        if was_confirmed:
            self.gaps += 1
            self._all_due_at = -inf
        self.closed()

    def closed(self) -> None:
        """Note that the link is given up because the bus closes: this is not a gap."""
        self.outbox.put_back()
        self.connected = self._confirmed = False
        if self._all_due_at < inf:
            self._check_everything()

    def _check_everything(self) -> None:
        self._all_due_at = inf
        self._check_all()

    def _notice(self, gap_at: float, now: float) -> None:
        """Check everything at *gap_at*, and count a gap that is not yet to come (R6, R8)."""
        if gap_at <= now:
            self.gaps += 1
            self._hear_everything(now)
        else:
            self._all_due_at = min(self._all_due_at, gap_at)

    def _hear_everything(self, now: float) -> None:
        """Check everything now, or soon after the last time: each time tries every operation (R7)."""
        self._all_due_at = min(self._all_due_at, max(now, self._all_checked_at + SPACING))
        self.tick(now)

    def _hear_echo(self, link: int, number: int) -> None:
        """Note an echo of this link; one of an earlier link says nothing. Its keys were checked when published."""
        if self._confirmed and link == self._link:
            self.echo.heard(number)
            self.connected = self.echo.echoed_at > -inf

    def _hear_keys(self, lines: list[str]) -> bool:
        """Check the keys on *lines*. Returns: False if a line is not a key."""
        try:
            keys = decode_all(lines)
        except MalformedError:
            return False
        self.received += len(keys)
        self._check(keys)
        return True

    def _hear_lines(self, text: str, now: float, is_of_a_bus: bool) -> None:
        """Check the keys in *text* line by line: not all of them are well-formed keys."""
        keys: list[Hashable] = []
        malformed = 0
        for line in map(str.strip, text.split("\n")):
            if line == EVERY_KEY:
                self.received += 1
                self._hear_everything(now)
            elif line:
                try:
                    keys.append(decode(line))
                except MalformedError:
                    malformed += 1
                    if malformed == MAX_MALFORMED:
                        if is_of_a_bus:  # the rest may hold keys: it is of a newer version
                            self._hear_everything(now)
                        break
        self.malformed += malformed
        self.received += len(keys)
        self._check(keys)


def _parse(head: str) -> tuple[str, int, int]:
    """Return origin, link and number. Link and number are 0 if it has none, as in earlier versions."""
    match head[1:].split(" "):
        case [origin, link, number] if len(head) < 100 and link.isdecimal() and number.isdecimal():
            return origin, int(link), int(number)
        case [origin, *_]:
            return origin, 0, 0
    raise AssertionError("split() returns at least one part")
