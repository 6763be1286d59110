"""A look at every file of a journal before its rows are read: which are torn, and which were delivered twice?

Only the feet of the files are read, and of the operations the two columns that identify a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from .journal_tables import Table

#: One row per file and instance: ``first`` to ``last`` are its sequence numbers, ``ordered`` if they only go up.
#: ``problem`` says why the file cannot be read, and ``rows`` is then null unless the file's own word is there.
SURVEY: Final = T.StructType(
    [
        T.StructField("file", T.StringType()),
        T.StructField("rows", T.LongType()),
        T.StructField("problem", T.StringType()),
        T.StructField("instance", T.StringType()),
        T.StructField("first", T.LongType()),
        T.StructField("last", T.LongType()),
        T.StructField("ordered", T.BooleanType()),
    ]
)
_TASKS_PER_CORE: Final = 2
_FOUND: Final = to_arrow_schema(SURVEY)


def survey(spark: SparkSession, path: str, table: Table) -> DataFrame:
    """SURVEY of all Parquet files below *path*."""
    files = spark.createDataFrame(pa.table({"file": pa.array(_files(spark, path), pa.string())}))
    arrow, counter = table.arrow, table.counter

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                yield pa.RecordBatch.from_pylist(_seen(file, arrow, counter), schema=_FOUND)

    return files.repartition(_TASKS_PER_CORE * spark.sparkContext.defaultParallelism).mapInArrow(look, SURVEY)


def _files(spark: SparkSession, path: str) -> list[str]:
    """All of them, by the names that the rows know them by; a query would leave out those of 0 bytes."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True).option("pathGlobFilter", "*.parquet")
    return sorted(file.replace("file:///", "file:/", 1) for file in reader.load(path).inputFiles())


def delivered_twice(surveyed: DataFrame) -> DataFrame:
    """SURVEY -> file: those whose rows may be in another one, too, or twice in itself."""
    before = Window.partitionBy("instance").orderBy("first", "last", "file").rowsBetween(Window.unboundedPreceding, -1)
    after = Window.partitionBy("instance").orderBy("first", "last", "file").rowsBetween(1, Window.unboundedFollowing)
    overlaps: Column = (F.max("last").over(before) >= F.col("first")) | (F.min("first").over(after) <= F.col("last"))
    known = surveyed.where("problem IS NULL AND first IS NOT NULL")
    marked = known.select("file", (F.coalesce(overlaps, F.lit(False)) | ~F.col("ordered")).alias("suspect"))
    return marked.where("suspect").select("file").distinct()


def _seen(file: str, arrow: pa.Schema, counter: str | None) -> list[dict[str, Any]]:
    """The rows of the survey for one file. Whatever is wrong with it is its problem, never that of the run."""
    row: dict[str, Any] = {"file": file, "rows": None, "problem": None}
    try:
        system, path = FileSystem.from_uri(file.replace("s3a://", "s3://", 1))
        with system.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
            row["rows"] = parquet.metadata.num_rows
            row["problem"] = _mismatch(parquet.schema_arrow, arrow)
            if row["problem"] or counter is None or not row["rows"]:
                return [row]
            return [row | ranges for ranges in _ranges(parquet, counter)]
    except (OSError, pa.ArrowException, ValueError) as error:
        return [row | {"problem": f"torn: {str(error)[:200]}"}]


def _mismatch(found: pa.Schema, wanted: pa.Schema) -> str | None:
    names = [name.lower() for name in found.names]
    for name in wanted.names:
        if names.count(name) > 1:
            return f"column {name} is there more than once"
        if name in names and _plain(found.field(names.index(name)).type) != wanted.field(name).type:
            return f"column {name} is {found.field(names.index(name)).type}, not {wanted.field(name).type}"
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    """How a file says its strings are to be held in memory makes no difference to what it holds."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if kind in (pa.large_string(), pa.string_view()) else kind


def _ranges(parquet: pq.ParquetFile, counter: str) -> list[dict[str, Any]]:
    names = {name.lower(): name for name in parquet.schema_arrow.names}
    if counter not in names or "instance" not in names:
        return [{}]  # every row will be set aside
    ranges: dict[str | None, tuple[int, int]] = {}
    ordered, previous = True, None
    for batch in parquet.iter_batches(columns=[names["instance"], names[counter]]):
        numbers = batch.column(names[counter]).drop_null()
        if not len(numbers):
            continue
        ordered = ordered and (previous is None or numbers[0].as_py() > previous) and _goes_up(numbers)
        previous = numbers[-1].as_py()
        _widen(ranges, pa.table([batch.column(names["instance"]), batch.column(names[counter])], ["instance", "n"]))
    found: list[dict[str, Any]] = [
        {"instance": name, "first": low, "last": high, "ordered": ordered} for name, (low, high) in ranges.items()
    ]
    for extra in found[1:]:  # the rows of a file are counted once
        extra["rows"] = 0
    return found or [{}]


def _goes_up(numbers: pa.Array) -> bool:
    values = numbers.to_numpy()
    return bool((values[:-1] < values[1:]).all())


def _widen(ranges: dict[str | None, tuple[int, int]], rows: pa.Table) -> None:
    """Take the least and the greatest number of each instance into *ranges*."""
    for row in rows.group_by("instance").aggregate([("n", "min"), ("n", "max")]).to_pylist():
        if row["instance"] is None or row["n_min"] is None:
            continue
        low, high = ranges.get(row["instance"], (row["n_min"], row["n_max"]))
        ranges[row["instance"]] = min(low, row["n_min"]), max(high, row["n_max"])
