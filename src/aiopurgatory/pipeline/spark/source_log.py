"""Reads the files of a batch from the log that Spark's file source keeps in a stream's checkpoint."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileType
from pyspark.sql import SparkSession

from . import folders


def missing(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """Return the files of batch *number* that are missing. Spark leaves them out of the batch silently."""
    found = []
    for path in files(spark, checkpoint, number):
        system, place = folders.arrow_place(path)
        if system.get_file_info(place).type == FileType.NotFound:
            found.append(path)
    return found


def files(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """Return the files of batch *number*, which has begun."""
    first = _offset(spark, checkpoint, number - 1) + 1 if number else 0
    found = []
    for entry in range(first, _offset(spark, checkpoint, number) + 1):
        name = f"{checkpoint}/sources/0/{entry}"
        compact = f"{name}.compact"  # every tenth also has the entries of all earlier ones
        lines = folders.read(spark, compact if folders.exists(spark, compact) else name).splitlines()[1:]
        found += [each["path"] for each in map(json.loads, lines) if each["batchId"] == entry]
    return [unquote(urlsplit(path).path) if path.startswith("file:") else unquote(path) for path in found]


def _offset(spark: SparkSession, checkpoint: str, number: int) -> int:
    """Return the last entry of batch *number*."""
    last = folders.read(spark, f"{checkpoint}/offsets/{number}").splitlines()[-1]
    return int(json.loads(last)["logOffset"])
