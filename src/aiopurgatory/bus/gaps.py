"""Notices gaps, and checks everything after them (R1, R3, R6, R7, R8 of exchange.py). No I/O.

Gaps show by answers that the server owes, and by numbers that are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import random
from typing import Final, NamedTuple, final

#: The most processes to remember, each with its last message.
MAX_ORIGINS: Final = 1_000
#: Seconds between two checks of everything caused by messages.
SPACING: Final = 0.25


class Pace(NamedTuple):
    """How fast a bus is: seconds, as for ServerBus."""

    heartbeat: float
    timeout: float
    spread: float = 0.0

    def noticed(self) -> float:
        """Return the seconds within which a gap is noticed."""
        return 1.5 * self.heartbeat + self.timeout


class Echo:
    """Tracks which acknowledgements and echoes the server owes (R3). Times are in seconds."""

    def __init__(self, pace: Pace) -> None:
        self._heartbeat, self._timeout, _ = pace
        #: For each batch without an echo: the number of its last message, and the time at which it was sent or due.
        self._unechoed: deque[tuple[int, float]] = deque()
        self._acknowledged = 0
        self.reset()

    def reset(self) -> None:
        """Start over for a new link: no answer is missing, and a probe is due at once."""
        self._unechoed.clear()
        #: Of the last message. Continues the last link's numbers: a process that its last messages did not reach sees a
        #: missing number.
        self.number = self._acknowledged
        self._sent_at = -inf
        self._unacknowledged_since = inf
        #: The time at which the newest echoed message was sent.
        self.echoed_at = -inf

    def sent(self, count: int, now: float) -> None:
        self.number += count
        # A message may have waited for the last acknowledgement. It then counts from the time at which it was due, so
        # that a slow acknowledgement does not delay the detection of a gap. It gets at least 1.5 heartbeats: an
        # acknowledgement in time leaves as much, however late the loop reads it. The cost: with a heartbeat below the
        # timeout, acknowledgement and echo together get 1.5 * heartbeat + timeout, not twice the timeout.
        slack = 1.5 * self._heartbeat
        due = max(self._sent_at + slack, now - self._timeout + slack)
        self._unechoed.append((self.number, min(now, due) if self._sent_at > -inf else now))
        self._sent_at = self._unacknowledged_since = now

    def acknowledged(self) -> None:
        self._unacknowledged_since = inf
        self._acknowledged = self.number

    def is_acknowledgement_overdue(self, now: float) -> bool:
        return now >= self._unacknowledged_since + self._timeout

    def is_unacknowledged(self) -> bool:
        return self._unacknowledged_since < inf

    def heard(self, number: int) -> None:
        """Note the echo of a message. The echo of a batch's last message confirms the batch and all earlier ones."""
        while self._unechoed and self._unechoed[0][0] <= number <= self.number:
            self.echoed_at = self._unechoed.popleft()[1]

    def probe_at(self) -> float:
        """Return the time at which a probe is due."""
        # Counted from the last message, not from its echo: later and later echoes must not delay the probe.
        return inf if self.is_unacknowledged() else self._sent_at + self._heartbeat

    def overdue_at(self) -> float:
        """Return the time at which an answer is overdue."""
        unechoed_since = self._unechoed[0][1] if self._unechoed else inf
        return min(unechoed_since, self._unacknowledged_since) + self._timeout


class Arrivals:
    """Notices missing numbers among the messages of each process (R6, R8).

    Args: settling: seconds after a subscription. Within this time, every other process sends a message.
    """

    def __init__(self, settling: float) -> None:
        self._settling: Final = settling
        self._settled_at = inf
        #: By origin: its last link, and the last number on that link.
        self._last: dict[str, tuple[int, int]] = {}

    def reset(self, origin: str, link: int, number: int, now: float) -> None:
        """Start over for a new link of this process: earlier messages of others are not known."""
        self._last = {origin: (link, number)}
        self._settled_at = now + self._settling

    def gap_at(self, origin: str, link: int, number: int, now: float) -> float:
        """Note a message. Returns: the time to check everything; infinity if no earlier message is missing."""
        last = self._last.get(origin)
        if last is None:
            if len(self._last) >= MAX_ORIGINS:  # most have ended; the others are heard anew, as after reset()
                self.reset(origin, link, number, now)
            self._last[origin] = link, number
            return self._settled_at if number > 1 else inf
        if (link, number) <= last:  # repeated, or late
            return inf
        self._last[origin] = link, number
        return now if number > last[1] + 1 else inf  # a new link repeats the numbers that were not acknowledged


@final
class Everything:
    """Checks every key here, at once or later.

    Args:
        check_all: called to check every key.
        spread: seconds. A check after a gap is made at a random time within them, so that the processes do not read in
            a herd.
    """

    def __init__(self, check_all: Callable[[], object], spread: float) -> None:
        self._check_all: Final = check_all
        self._spread: Final = spread
        #: Whether a gap has not led to a check yet.
        self.is_owed = False
        #: The times of the last check, of the last one caused by a message, and of the next one.
        self.checked_at = self._asked_at = -inf
        self.due_at = inf

    def check(self, now: float) -> None:
        """Check everything now."""
        self.is_owed, self.due_at, self.checked_at = False, inf, now
        self._check_all()

    def check_at(self, when: float) -> None:
        """Check everything at *when*, if that is not due before."""
        self.due_at = min(self.due_at, when)

    def check_after_gap(self, now: float, is_first: bool) -> None:
        """Args: is_first: this is the first link, so nobody else checks everything for the same reason."""
        if is_first or not self._spread:
            self.check(now)
        else:
            self.check_at(now + self._spread * random())
            self.tick(now)  # an earlier gap may have been due

    def ask(self, now: float) -> None:
        """Check everything now, or SPACING after the last time, because each time tries every operation (R7)."""
        self.check_at(max(now, self._asked_at + SPACING))
        self.tick(now)

    def tick(self, now: float) -> None:
        """Check everything if that is due."""
        if now >= self.due_at:
            self._asked_at = now
            self.check(now)

    def broken(self, now: float) -> None:
        """The link is given up: check now what a message has asked for, as the server may be down for long."""
        if self.due_at <= self._asked_at + SPACING:
            self.check(now)

    def closed(self, now: float) -> None:
        """The bus closes: make the checks that are still due."""
        if self.is_owed or self.due_at < inf:
            self.check(now)
