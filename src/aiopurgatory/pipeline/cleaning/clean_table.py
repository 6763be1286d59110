"""Reads the clean tables through the newest manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from aiopurgatory.errors import PurgatoryError

from ..spark import folders
from . import versions
from .journal_tables import Table
from .versions import Manifest


def published(spark: SparkSession, folder: str) -> Manifest:
    """Return the newest manifest in *folder*. Raises: PurgatoryError: there are no clean tables."""
    manifest = versions.current(spark, folders.qualified(spark, folder))
    if not manifest.number:
        raise PurgatoryError(f"no clean table in {folder}: run aiopurgatory pipeline ingest")
    return manifest


def read_clean(
    spark: SparkSession, folder: str, table: Table, *, first: date | None = None, last: date | None = None
) -> DataFrame:
    """Return the rows of a clean table in *folder*, of the days from *first* to *last* (None: no limit).

    Raises: PurgatoryError: there are no clean tables.
    """
    out = folders.qualified(spark, folder)
    files = published(spark, folder).files(out, table.name, first, last)
    return read_files(spark, files, schema(table))


def schema(table: Table) -> T.StructType:
    """Return the columns of *table*. Each may be null, as older files lack newer columns."""
    fields = from_arrow_schema(table.arrow)
    return T.StructType([T.StructField(field.name, field.dataType, True, field.metadata) for field in fields])


def read_files(spark: SparkSession, files: Sequence[str], schema: T.StructType | str) -> DataFrame:
    """Read Parquet *files* with any paths."""
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(folders.literal, files))
