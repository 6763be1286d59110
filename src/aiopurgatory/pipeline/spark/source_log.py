"""The files of a batch, as Spark's source of files notes them in the checkpoint of a stream."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileType
from pyspark.sql import SparkSession

from . import folders


def missing(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """The files of batch *number* that are not there. Spark leaves them out of the batch, and says nothing."""
    found = []
    for path in files(spark, checkpoint, number):
        system, place = folders.arrow_place(path)
        if system.get_file_info(place).type == FileType.NotFound:
            found.append(path)
    return found


def files(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """The files of batch *number*, which has begun."""
    first = _offset(spark, checkpoint, number - 1) + 1 if number else 0
    found = []
    for entry in range(first, _offset(spark, checkpoint, number) + 1):
        name = f"{checkpoint}/sources/0/{entry}"
        compact = f"{name}.compact"  # every tenth has the entries of all before it, too
        lines = folders.read(spark, compact if folders.exists(spark, compact) else name).splitlines()[1:]
        found += [each["path"] for each in map(json.loads, lines) if each["batchId"] == entry]
    return [unquote(urlsplit(path).path) if path.startswith("file:") else unquote(path) for path in found]


def _offset(spark: SparkSession, checkpoint: str, number: int) -> int:
    """The last entry that batch *number* has."""
    last = folders.read(spark, f"{checkpoint}/offsets/{number}").splitlines()[-1]
    return int(json.loads(last)["logOffset"])
