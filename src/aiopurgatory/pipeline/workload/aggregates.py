"""Clean table -> small aggregates for the estimates of fit, in two queries.

Four rows per operation and one aggregation take half the CPU of a query for each table. Rejected, measured: mapInArrow
with numpy, which takes 1.6 times as much as this on 3 million rows, as every row goes to Python.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .arrivals import HOUR
from .completion import BINS

STREAM: Final = ("purgatory", "kind")
#: An operation with more keys counts as one with this many.
MOST_KEYS: Final = 64
#: The values of the column ``what``.
ARRIVALS, AT_ONCE, SHORTER, COMPLETED, LONGER, TIMEOUTS, KEY_COUNTS = range(7)
_SUMMED: Final = ("weight", "squares", "total", "total_squares")
# A completion in the same microsecond took less than one, and still some time.
_X: Final = "ln(CAST(greatest(waited_us, 1L) AS DOUBLE))"
_ENDED: Final = f"""
    CASE WHEN outcome != 'completed' THEN {LONGER}
         WHEN waited_us <= 0 THEN {AT_ONCE}
         WHEN missed_trigger THEN {SHORTER}
         ELSE {COMPLETED} END
"""
_FOUR: Final = f"""stack(4,
    {ARRIVALS}, unix_seconds(watched_at), 0D,
    ended, floor(x * {BINS}), x,
    {TIMEOUTS}, floor(ln(1D + timeout_us) * {BINS}), coalesce(CAST(timeout_us AS DOUBLE), 0D),
    {KEY_COUNTS}, CAST(least(greatest(key_count, 1), {MOST_KEYS}) AS BIGINT), 0D
) AS (what, number, value)"""


def aggregates(operations: DataFrame) -> DataFrame:
    """Operations -> purgatory, kind, what, number, weight, squares, total, total_squares; for arrivals four more.

    Columns, by ``what``:
        ARRIVALS: ``number`` is the hour since the epoch. ``squares_of_seconds`` sums the squared weights of seconds;
            ``first``, ``last`` are (second, weight, squares) of the hour's first and last second with arrivals.
        AT_ONCE, SHORTER, COMPLETED, LONGER: ``number`` is the bin of x, the logarithm of the microseconds waited.
            COMPLETED is exact. LONGER is right-censored: expired, cancelled or failed. SHORTER is left-censored:
            completed by the last try at the deadline. AT_ONCE never waited.
        TIMEOUTS: ``number`` is the bin of the timeout, null without one; x is the timeout in microseconds.
        KEY_COUNTS: ``number`` is how many keys.
        Each: ``weight`` and ``squares`` sum the weights and their squares, ``total`` and ``total_squares`` sum
            weight * x and weight * x**2.
    """
    known = operations.select(
        *STREAM, "weight", "watched_at", "timeout_us", "key_count", F.expr(_X).alias("x"), F.expr(_ENDED).alias("ended")
    )
    single = known.select(*STREAM, "weight", F.expr(_FOUR))
    found = single.groupBy(*STREAM, "what", "number").agg(
        F.expr("sum(weight) AS weight"),
        F.expr("sum(weight * weight) AS squares"),
        F.expr("sum(weight * value) AS total"),
        F.expr("sum(weight * value * value) AS total_squares"),
    )
    group = F.expr(f"CASE WHEN what = {ARRIVALS} THEN number DIV {HOUR} ELSE number END").alias("number")
    found = found.select(*STREAM, "what", group, F.col("number").alias("second"), *_SUMMED)
    return found.groupBy(*STREAM, "what", "number").agg(
        *(F.sum(name).alias(name) for name in _SUMMED),
        F.expr("sum(weight * weight) AS squares_of_seconds"),
        F.expr("min(struct(second, weight, squares)) AS first"),
        F.expr("max(struct(second, weight, squares)) AS last"),
    )


def keys_by_count(operations: DataFrame) -> DataFrame:
    """Operations -> purgatory, kind, count, keys: the number of first keys with ``count`` operations."""
    per_key = operations.groupBy(*STREAM, "key_hash").agg(F.round(F.sum("weight"), 3).alias("count"))
    found = per_key.groupBy(*STREAM, "count").agg(F.count(F.lit(1)).alias("keys"))
    return found.select(*STREAM, "count", "keys")
