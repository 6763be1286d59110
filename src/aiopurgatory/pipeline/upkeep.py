"""Keeps the folder of results small: repeats the sums of many batches in one, and removes what nobody reads.

A reader of sums has the time of EVERY batches at least until their folders are removed, and a reader of the report the
time of one more report.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from .attempts import Line, committed, following, literal, sums
from .session import at_once
from .sums import total
from .tables import SUMS

#: Tables whose rows are no counts to add up.
_LISTS: Final = (
    *("snapshots", "files", "losses", "touched", "sealed", "forgotten"),
    *("quarantined_operations", "quarantined_statistics"),
)
_ATTEMPT: Final = re.compile(r"/((\d+)\.(\d+T[^./]+)\.[^./]+)/")


def merged(spark: SparkSession, out: str, line: Line) -> Line | None:
    """Repeat the sums of many batches in one, if that is due; return the line with it.

    Returns: None if another run was faster.
    """
    made = following(line)
    if made.first == made.number:
        return line
    merges = [each.number for each in line if each.first < each.number]
    sweep(spark, f"{out}/sums", {each.name for each in line}, max(merges, default=0))
    repeated = [each.number for each in line if each.number >= made.first]

    def repeat(name: str) -> None:
        rows = sums(spark, out, name, line, repeated)
        # An account is one file, so that it is there or not. A reader of the last days passes over all others.
        rows = rows.coalesce(1).sortWithinPartitions("day", "path") if name == "files" else rows
        (rows if name in _LISTS else total(rows)).write.parquet(f"{out}/sums/{made.folder}/{name}")

    at_once(partial(repeat, name) for name in SUMS if name != "files")
    repeat("files")
    line = [*line[: -len(repeated)], made]
    return line if committed(spark, out) == line else None


def sweep(spark: SparkSession, root: str, keep: Collection[str], before: int) -> None:
    """Remove attempts with a number *before* that one, but for the names to *keep*: they do not count any more."""
    options = {"recursiveFileLookup": "true", "pathGlobFilter": "*.parquet"}
    files = spark.read.format("binaryFile").options(**options).load(literal(root)).inputFiles() if before else []
    found = {place.groups() for path in files if (place := _ATTEMPT.search(path))}
    dead = [folder for folder, number, name in found if int(number) < before and name not in keep]
    at_once(partial(_empty, spark, f"{root}/{folder}") for folder in dead)


def _empty(spark: SparkSession, folder: str) -> None:
    """Remove all files of a *folder*. No rows of a table with parts have no file: this works on any file system."""
    none = spark.range(0).withColumn("part", F.lit(0)).write.mode("overwrite").partitionBy("part")
    none.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(folder)
