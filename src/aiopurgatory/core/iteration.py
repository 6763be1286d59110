"""The work of a purgatory in one loop iteration, within a budget that expiry, checks and purging share (I8)."""

from __future__ import annotations

from typing import Final, final

from .checks import KeyChecks
from .deadlines import Deadlines
from .loop import Loop
from .purging import Purging


@final
class Iteration:
    """Args: budget: seconds that one iteration may take."""

    __slots__ = ("_checks", "_deadlines", "_loop", "_purging", "budget", "longest")

    def __init__(self, budget: float, loop: Loop, deadlines: Deadlines, checks: KeyChecks, purging: Purging) -> None:
        self.budget: Final = budget
        self._loop: Final = loop
        self._deadlines: Final = deadlines
        self._checks: Final = checks
        self._purging: Final = purging
        #: Seconds that the longest iteration took.
        self.longest = 0.0

    def run(self) -> bool:
        """Expire, check and purge, within the budget. Returns: whether work is left."""
        self._loop.note_thread()
        begin = self._loop.turn_time()
        share = self.budget / (1 + self._checks.has_work() + self._purging.has_work())
        more = self._deadlines.expire_due(share)
        more = self._checks.work(share) or more
        more = self._purging.work(share) or more
        self.longest = max(self.longest, self._loop.turn_time() - begin)
        return more or self._checks.has_work()
