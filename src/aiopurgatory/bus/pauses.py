"""Computes the pauses before a bus connects again (R4 of rules.py). No I/O."""

from __future__ import annotations

from typing import Final, final

#: Seconds: the first pause, and the longest. Pauses double with each break.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
#: Seconds: the longest pause after attempts that timed out. A longer timeout replaces it.
LONGEST_TIMED_OUT: Final = 10.0
#: Each doubling is undone by a link that was up for so many seconds.
STEADY: Final = 1.0
#: Breaks after which the pause grows no more.
_MOST_BREAKS: Final = 7.0
#: Attempts in a row that timed out, after which the pause grows no more.
_MOST_TIMED_OUT: Final = 4


@final
class Pauses:
    """Doubles the pause with each break, and halves it with every STEADY seconds that a link was up.

    An echo alone does not shorten the pause: a link that breaks after each echo would cause too many checks of
    everything. An attempt that timed out may go on at the server. So after the second in a row, pauses
    grow from one timeout to four, but not beyond ten seconds.

    Args: timeout: seconds that an attempt may take.
    """

    __slots__ = ("_breaks", "_timed_out", "_timeout")

    def __init__(self, timeout: float) -> None:
        self._timeout: Final = timeout
        self._breaks = 0.0
        self._timed_out = 0

    def after(self, up_for: float, timed_out: bool, chance: float) -> float:
        """Return the seconds to wait after a link broke, or could not be opened.

        Args:
            up_for: seconds since the link's first echo; 0.0 if there was none.
            timed_out: whether the server did not answer in time.
            chance: a random number from 0 to 1, so that processes don't return in a herd.
        """
        self._breaks = min(max(0.0, self._breaks - up_for / STEADY) + 1.0, _MOST_BREAKS)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._breaks - 1.0))
        before = 0 if up_for else self._timed_out
        self._timed_out = min(before + 1, _MOST_TIMED_OUT) if timed_out else 0
        if self._timed_out > 1:
            pause = max(pause, min(self._timeout * 2.0 ** (self._timed_out - 2), max(self._timeout, LONGEST_TIMED_OUT)))
        return float(pause * (0.5 + chance / 2))
