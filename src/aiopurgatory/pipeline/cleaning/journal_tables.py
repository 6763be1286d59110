"""The two tables of a journal as Spark has them: raw as they were written, and clean as ingest leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal import schema

from ..spark import folders

OUTCOMES: Final = ("completed", "expired", "cancelled", "failed")
# In microseconds.
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND


@dataclass(frozen=True)
class Table:
    """One of the two."""

    name: str
    arrow: pa.Schema
    #: What no two rows have in common.
    identity: tuple[str, ...]
    #: Counts up through the files of an instance: a file delivered twice shows by its first and last.
    counter: str | None

    @property
    def raw(self) -> T.StructType:
        """As it is read: a file may lack what is younger than it."""
        fields = from_arrow_schema(self.arrow)
        return T.StructType([T.StructField(field.name, field.dataType, True, field.metadata) for field in fields])

    @property
    def clean(self) -> T.StructType:
        """As ingest leaves it: what the folders' names say comes last."""
        inside = [field for field in self.raw if field.name != "purgatory"]
        return T.StructType([*inside, T.StructField("date", T.DateType()), T.StructField("purgatory", T.StringType())])

    def at(self) -> Column:
        """When a row came to be, in microseconds, which decides on its date; null beyond the end of 64 bits."""
        return F.unix_micros("at") if self is STATISTICS else ended_us()


OPERATIONS: Final = Table("operations", schema.OPERATIONS, ("instance", "sequence"), "sequence")
STATISTICS: Final = Table("statistics", schema.STATISTICS, ("instance", "purgatory", "at"), None)


def ended_us() -> Column:
    """When an operation ended, in microseconds; null beyond the end of 64 bits."""
    return F.try_add(F.unix_micros("watched_at"), F.col("waited_us"))


def read_clean(
    spark: SparkSession, folder: str, table: Table, *, first: date | None = None, last: date | None = None
) -> DataFrame:
    """What ingest left in *folder*, of the days from *first* to *last*.

    Raises: PurgatoryError: nothing is there.
    """
    path = f"{folder}/{table.name}"
    if not folders.exists(spark, path):
        raise PurgatoryError(f"no clean table in {path}: aiopurgatory pipeline ingest makes it")
    rows = spark.read.schema(table.clean).parquet(path)
    return rows.where(between(F.col("date"), first, last))


def between(day: Column, first: date | None, last: date | None) -> Column:
    """Whether *day* is one of those from *first* to *last*; None: without end."""
    bounds = [day >= F.lit(first)] if first else []
    bounds += [day <= F.lit(last)] if last else []
    return _all(bounds)


def _all(conditions: Sequence[Column]) -> Column:
    whole = F.lit(True)
    for condition in conditions:
        whole = whole & condition
    return whole
