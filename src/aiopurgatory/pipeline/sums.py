"""Good rows -> sums, as described in tables.py. The sums of two groups of rows add up to the sums of both: see total().

Group keys decide the cost. A string costs several times as much as a number, so sums name a purgatory and kind by one
number, ``series``; the table ``hours`` has the names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .tables import BINS, DATES, DAY, GROWTH, HOUR, KEYS, MINUTE, MOST_KEYS, OUTCOMES, SECOND

#: When an operation ended, in microseconds since 1970.
END: Final = "(unix_micros(watched_at) + waited_us)"
#: The whole seconds that see an operation's start and end first. It is waiting from the first until the second.
_SEEN: Final = f"(unix_micros(watched_at) + {SECOND - 1}) div {SECOND}"
_GONE: Final = f"({END} + {SECOND - 1}) div {SECOND}"
_DAY: Final = DAY // SECOND
_LONGEST_KEY: Final = 200
_COUNTS: Final = ("operations", "rows", "total", "change", "watched")
#: How columns of several batches add up. All others are group keys.
_ADDED: Final[dict[str, Callable[[str], Column]]] = {
    **dict.fromkeys(_COUNTS, F.sum),
    "first_us": F.min,
    "key": F.min,
    "last_us": F.max,
    **dict.fromkeys(["bits", "before"], F.bit_or),
}


def activity(rows: DataFrame) -> DataFrame:
    """Count how operations ended, by minute: a histogram of waits and of lateness."""
    # Selected first, so that each logarithm is computed once.
    times = rows.select(
        *(F.expr(f"CAST({END} div {MINUTE} AS INT) AS minute"), series().alias("series")),
        *(outcome_code().alias("outcome"), "missed_trigger", "weight", "waited_us", "lateness_us"),
        F.ln(F.greatest("waited_us", F.lit(1))).alias("waited_ln"),
        F.ln(F.greatest("lateness_us", F.lit(1))).alias("lateness_ln"),
    )
    buckets = [bucket(f"{each}_us", f"{each}_ln").alias(each) for each in ("waited", "lateness")]
    by = times.groupBy("minute", "series", "outcome", "missed_trigger", *buckets)
    return by.agg(F.sum("weight").alias("operations"), F.count(F.lit(1)).alias("rows"))


def daily(activity: DataFrame) -> DataFrame:
    """Sum the activity of each day."""
    date = F.expr(f"{DATES['activity']} AS date")
    by = activity.groupBy(date, "series", "outcome", "missed_trigger", "waited", "lateness")
    return by.agg(F.sum("operations").alias("operations"))


def hours(rows: DataFrame) -> DataFrame:
    """Count operations by hour, timeout, and number of keys."""
    weight, timeout = F.col("weight"), F.col("timeout_us")
    hour = F.expr(f"CAST({END} div {HOUR} AS INT) AS hour")
    near = F.floor(F.ln(timeout.cast("double") + 1) * BINS).cast("int").alias("timeout")
    by = rows.groupBy(hour, *KEYS, near, F.least("key_count", F.lit(MOST_KEYS)).cast("int").alias("key_count"))
    summed = by.agg(
        F.sum(weight).alias("operations"),
        F.sum(weight * timeout).alias("total"),
        F.min(F.expr(END)).alias("first_us"),
        F.max(F.expr(END)).alias("last_us"),
    )
    return summed.withColumn("series", series())


def waiting(rows: DataFrame) -> DataFrame:
    """Sum the changes in the number of waiting operations, by second. Most operations wait for less."""
    seen = rows.where(f"{_SEEN} < {_GONE}").select(
        *(series().alias("series"), "weight"),
        *(F.expr(f"{second} AS {name}") for name, second in (("first", _SEEN), ("last", _GONE))),
        *(F.expr(f"{second} div {_DAY} AS {name}") for name, second in (("first_day", _SEEN), ("last_day", _GONE))),
    )
    days = f"transform(sequence(first_day, last_day), each -> array({_changes_on('each')}))"
    pairs = f"inline(IF(first_day = last_day, array({_changes_on('first_day')}), flatten({days})))"
    changes = seen.select("series", F.expr(pairs))
    date = F.expr("date_from_unix_date(CAST(day AS INT)) AS date")
    return changes.groupBy(date, "second", "series").agg(F.sum("change").alias("change"))


def _changes_on(day: str) -> str:
    """Return what an operation changes on a day. At midnight it leaves the day before, and enters the next."""
    return (
        f"struct({day} AS day, greatest(first, {day} * {_DAY}) AS second, weight AS change), "
        f"struct({day} AS day, least(last, ({day} + 1) * {_DAY}) AS second, -weight AS change)"
    )


def ends(rows: DataFrame) -> DataFrame:
    """Count ends by second."""
    second = F.expr(f"{END} div {SECOND} AS second")
    return rows.groupBy(second, series().alias("series"), outcome_code().alias("outcome")).agg(
        F.sum("weight").alias("operations")
    )


def keys(rows: DataFrame) -> DataFrame:
    """Count how often keys are used."""
    weight = F.col("weight")
    return rows.groupBy("purgatory", "key_hash").agg(
        F.sum(weight).alias("operations"), F.sum(weight * F.col("key_count")).alias("watched")
    )


def names(rows: DataFrame) -> DataFrame:
    """Return one name of each key that has one. It costs only a scan of nulls if the journal keeps no keys."""
    known = rows.where("key IS NOT NULL").select(
        "purgatory", "key_hash", F.substring("key", 1, _LONGEST_KEY).alias("key")
    )
    return known.groupBy("purgatory", "key_hash").agg(F.min("key").alias("key"))


def words(rows: DataFrame) -> DataFrame:
    """Return which sequence numbers there are, 64 in a word, and how many rows."""
    bit = F.expr("shiftleft(1L, CAST(sequence & 63 AS INT))")
    return rows.groupBy("instance", F.expr("sequence div 64 AS word")).agg(
        F.bit_or(bit).alias("bits"), F.count(F.lit(1)).alias("rows")
    )


#: Table -> the function that makes it of good rows of operations, besides activity.
OF_ROWS: Final = {make.__name__: make for make in (hours, waiting, keys, names, ends)}


def total(sums: DataFrame) -> DataFrame:
    """Add up the sums of several batches."""
    by = [name for name in sums.columns if name not in _ADDED]
    added = [_ADDED[name](name).alias(name) for name in sums.columns if name in _ADDED]
    return sums.groupBy(*by).agg(*added).select(*sums.columns)


def series() -> Column:
    """Return the number of a purgatory and kind."""
    return F.xxhash64(*KEYS)


def outcome_code() -> Column:
    """Return the place of the outcome in OUTCOMES."""
    cases = " ".join(f"WHEN '{name}' THEN {place}Y" for place, name in enumerate(OUTCOMES))
    return F.expr(f"CASE outcome {cases} END")


def kinds(hours: DataFrame) -> DataFrame:
    """Return the names of each series, and its first and last end."""
    return hours.groupBy("series", *KEYS).agg(F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us"))


def named(rows: DataFrame, kinds: DataFrame) -> DataFrame:
    """Replace ``series`` by the names of the purgatory and kind."""
    others = [name for name in rows.columns if name != "series"]
    return rows.join(F.broadcast(kinds.select("series", *KEYS)), "series", "inner").select(*KEYS, *others)


def bucket(value: str, logarithm: str) -> Column:
    """Return the number of the bucket of *value*, in microseconds, by its *logarithm*; null for null."""
    number = F.ceil(F.col(logarithm) * (1 / math.log(GROWTH)))
    return F.when(F.col(value) == 0, -1).when(F.col(value) > 0, number).cast("smallint")


def middle(number: Column) -> Column:
    """Return the microseconds that represent a bucket."""
    return F.when(number == -1, 0.0).otherwise(F.pow(F.lit(GROWTH), number) * (2 / (GROWTH + 1)))
