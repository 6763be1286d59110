"""The units of the tables: spans of time in microseconds, instants, and the outcomes of operations."""

from __future__ import annotations

from datetime import date
from typing import Final

import pyarrow as pa

from aiopurgatory import Outcome

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
EPOCH: Final = date(1970, 1, 1)
#: pandas, which may read the tables, counts nanoseconds in 64 bits. These end in 2262.
LAST_YEAR: Final = 2261
INSTANT: Final = pa.timestamp("us", tz="UTC")
#: The values of the column ``outcome``. Their order gives the codes in sums.
OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
