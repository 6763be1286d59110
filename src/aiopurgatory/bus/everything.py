"""When everything is checked (R1, R7, R8 of exchange.py). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import random
from typing import Final, final

#: Seconds between two checks of everything caused by messages.
SPACING: Final = 0.25


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
