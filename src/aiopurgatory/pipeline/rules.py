"""The rules for rows of a journal. A row that breaks one is quarantined, with the reason."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aiopurgatory.journal.schema import SCHEMA_VERSION

from .tables import ARROW, DAY, OUTCOMES

# No process lives that long, and all sums of such times stay in 64 bits.
LONGEST: Final = 366 * DAY
LARGEST_WEIGHT: Final = 1e9
LONGEST_NAME: Final = 255
# 2262-01-01: pandas, which may read the tables, counts nanoseconds in 64 bits.
_END_OF_TIME: Final = 9_214_646_400_000_000
# 2000-01-01: an archive, or a file system, that keeps no times says 1970 or 1980.
_KNOWN_TIMES: Final = 946_684_800_000_000


def with_reason(rows: DataFrame, table: str) -> DataFrame:
    """Add ``reason``: the first rule that the row breaks, null for a good row.

    Args:
        rows: of the journal, with two more columns: ``date``, the day in the name of the file's folder, and
            ``modified``, the time when the file was written.
        table: operations or statistics.
    """
    broken = [F.when(breaks, F.lit(name)) for name, breaks in rules(table).items()]
    return rows.withColumn("reason", F.coalesce(*broken))


def good(rows: DataFrame, table: str) -> DataFrame:
    """Return the rows that break no rule."""
    # By the rules, not by the reason: that takes a third of the time.
    return reduce(DataFrame.where, [~F.coalesce(breaks, F.lit(False)) for breaks in rules(table).values()], rows)


def quarantined(rows: DataFrame, table: str) -> DataFrame:
    """Return the rows that break a rule, with ``reason``."""
    return with_reason(rows, table).where("reason IS NOT NULL")


def rules(table: str) -> dict[str, Column]:
    """Return for each rule of *table* the condition that breaks it."""
    found = {"schema_version is unknown": F.col("schema_version") != SCHEMA_VERSION}
    found |= {f"{each.name} is null": F.col(each.name).isNull() for each in ARROW[table] if not each.nullable}
    found[f"purgatory is not of 1 to {LONGEST_NAME} bytes"] = ~F.octet_length("purgatory").between(1, LONGEST_NAME)
    return found | (_operations() if table == "operations" else _statistics()) | _times(table)


def _operations() -> dict[str, Column]:
    outcome, lateness, weight = F.col("outcome"), F.col("lateness_us"), F.col("weight")
    return {
        "outcome is unknown": ~outcome.isin(*OUTCOMES),
        "sequence is negative": F.col("sequence") < 0,
        "key_count is not positive": F.col("key_count") < 1,
        "waited_us is not from 0 to a year": ~F.col("waited_us").between(0, LONGEST),
        "timeout_us is negative": F.col("timeout_us") < 0,
        "lateness_us is not from 0 to a year": ~lateness.between(0, LONGEST),
        "lateness_us without expiring, or the reverse": lateness.isNotNull() != (outcome == "expired"),
        "missed_trigger without completing": F.col("missed_trigger") & (outcome != "completed"),
        "weight is not from 1 to 1e9": F.isnan(weight) | ~weight.between(1, LARGEST_WEIGHT),
    }


def _statistics() -> dict[str, Column]:
    counts = [each.name for each in ARROW["statistics"] if str(each.type) == "int64"]
    # Sums of such counts stay in 64 bits.
    return {f"{name} is not from 0 to 1e15": ~F.col(name).between(0, 10**15) for name in counts}


def _times(table: str) -> dict[str, Column]:
    first = F.unix_micros("watched_at" if table == "operations" else "at").cast("double")
    # As doubles: hostile numbers must break a rule, not the query, and sums of them may be beyond 64 bits.
    end = first + F.col("waited_us").cast("double") if table == "operations" else first
    day = F.unix_date(F.expr("try_cast(date AS DATE)"))
    # A file is begun while its rows come in: none is more than a day away, however late it is delivered.
    near = F.abs(F.floor(end / DAY) - day) <= 1
    # A clock that is ahead would put days into the report that have not come yet. The day of this query alone is in
    # Spark's generated code: with the time, Java would compile it anew for each query.
    tomorrow, modified = (F.unix_date(F.current_date()) + 1) * F.lit(float(DAY)), F.unix_micros("modified")
    written = F.when(modified >= _KNOWN_TIMES, F.least(modified.cast("double"), tomorrow)).otherwise(tomorrow)
    return {
        "time not of its file's day": ~F.coalesce(near, F.lit(False)),
        "time not of the years 1970 to 2261": ~F.coalesce((first >= 0) & (end < _END_OF_TIME), F.lit(False)),
        "time later than its file was written": end > written + DAY,
    }
