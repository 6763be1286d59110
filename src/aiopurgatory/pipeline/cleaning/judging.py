"""What makes a row of a journal impossible: such rows are set aside, with the reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from aiopurgatory.journal import schema

from .journal_tables import DAY, OPERATIONS, OUTCOMES, Table

# No process lives that long, and all sums of such times stay in 64 bits.
LONGEST: Final = 366 * DAY
LARGEST_WEIGHT: Final = 1e9
# A folder's name has 255 bytes, and a byte that is escaped in it takes three.
LONGEST_NAME: Final = 80
# What Spark calls the folder of a null.
NO_NAME: Final = "__HIVE_DEFAULT_PARTITION__"


def reason(table: Table) -> Column:
    """Why a row is impossible: the first rule that it breaks; null for a good one.

    Columns: those of ``table.raw``, and ``file_date``, that of the folder.
    """
    rules = _common(table) + (_operations() if table is OPERATIONS else _statistics())
    rules.append(("time not of its file's day", ~_near(table)))
    found = F.lit(None).cast("string")
    for name, broken in reversed(rules):
        found = F.when(broken, name).otherwise(found)
    return found


def _common(table: Table) -> list[tuple[str, Column]]:
    version = F.col("schema_version")
    name = F.col("purgatory")
    return [
        ("schema_version is unknown", version.isNull() | (version != schema.SCHEMA_VERSION)),
        *((f"{field.name} is null", F.col(field.name).isNull()) for field in table.arrow if not field.nullable),
        ("purgatory is no name for a folder", (name == "") | (name == NO_NAME) | (F.octet_length(name) > LONGEST_NAME)),
    ]


def _operations() -> list[tuple[str, Column]]:
    expired = F.col("outcome") == "expired"
    weight = F.col("weight")
    return [
        ("outcome is unknown", ~F.col("outcome").isin(*OUTCOMES)),
        ("sequence is negative", F.col("sequence") < 0),
        ("key_count is not positive", F.col("key_count") < 1),
        ("waited_us is negative", F.col("waited_us") < 0),
        ("waited_us is longer than a year", F.col("waited_us") > LONGEST),
        ("timeout_us is negative", F.col("timeout_us") < 0),
        ("lateness_us is negative", F.col("lateness_us") < 0),
        ("lateness_us is longer than a year", F.col("lateness_us") > LONGEST),
        ("lateness_us without expiring, or the reverse", F.col("lateness_us").isNotNull() != expired),
        ("missed_trigger without completing", F.col("missed_trigger") & (F.col("outcome") != "completed")),
        ("weight is not from 1 to 1e9", F.isnan(weight) | (weight < 1) | (weight > LARGEST_WEIGHT)),
    ]


def _statistics() -> list[tuple[str, Column]]:
    counts = [field.name for field in schema.STATISTICS if field.type == "int64"]
    return [(f"{name} is negative", F.col(name) < 0) for name in counts]


def _near(table: Table) -> Column:
    """A file is begun while its rows come in: none is more than a day away, whatever was delivered when."""
    day = F.unix_date("file_date").cast(T.LongType()) * DAY
    distance = F.try_subtract(table.at(), day)
    return F.coalesce((distance >= -DAY) & (distance < 2 * DAY), F.lit(False))
