"""The units of the tables: spans of time in microseconds, and the outcomes of operations."""

from __future__ import annotations

from typing import Final

from aiopurgatory import Outcome

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
#: The values of the column ``outcome``. Their order gives the codes in sums.
OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
