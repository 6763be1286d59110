"""What the folder of results holds: batches of files that count, tables, and documents for people.

A batch is written by an attempt with a name of its own:

    OUT/sums/<table>/attempt=<name>/                                    sums, quarantined rows
    OUT/sums/files/batch=<number>/attempt=<name>/parent=<name>/         the account of its files, written last

The attempt counts once its account is there. An account names its parent, the one before it, as a commit does. Two runs
at once may both write a batch upon the same parent: readers follow the longest line of accounts, and the older one of
two. The files of the other batch are new files to the next run. So nothing is locked or overwritten, and whoever is
killed leaves only an attempt that does not count.

Each 64th batch repeats the small sums of all batches before it (CUMULATIVE): readers begin there.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from aiopurgatory.errors import PurgatoryError

from .sums import total
from .tables import DATES, REPORT, SUMS, columns

#: Sums that a cumulative batch repeats.
CUMULATIVE: Final = ("files", "seen", "keys", "names", "hours", "daily", "losses", "touched", "sealed", "forgotten")
#: Of these, the tables whose rows are no counts to add up.
_LISTS: Final = ("files", "losses", "touched", "sealed", "forgotten")
_EVERY: Final = 64
#: Documents are files for people, on this machine. Tables are written by Spark.
MODEL, ADVICE, PAGE = "model.json", "advice.md", "report.html"
NO_SUMS: Final = "there are no sums in {}: run ingest with this folder first"
_ACCOUNT: Final = re.compile(r"/batch=(\d+)/attempt=([^/]+)/parent=([^/]+)/[^/]+$")


class BusyError(PurgatoryError):
    """Another run is using the same folder."""


@dataclass(frozen=True)
class Attempt:
    """One that has an account."""

    batch: int
    name: str
    parent: str


def committed(spark: SparkSession, out: str) -> list[Attempt]:
    """Return the attempts that count, the oldest first."""
    accounts = read_folder(spark, f"{out}/sums/files", f"{SUMS['files']}, batch BIGINT, attempt STRING, parent STRING")
    places = [match for path in accounts.inputFiles() if (match := _ACCOUNT.search(path))]
    found = {name: Attempt(int(batch), name, parent) for batch, name, parent in (each.groups() for each in places)}
    line: list[Attempt] = []
    # Names begin with their time.
    at = min(found.values(), key=lambda each: (-each.batch, each.name), default=None)
    while at:
        line.append(at)
        at = found.get(at.parent)
    return line[::-1]


def sums(spark: SparkSession, out: str, name: str, attempts: Sequence[Attempt] | None = None) -> DataFrame:
    """Return the rows of the table *name* of SUMS. Those of several batches are not added up: see sums.total().

    Args: attempts: only rows of these (default: all that count).
    """
    line = committed(spark, out) if attempts is None else attempts
    begin = max((each.batch for each in line if is_cumulative(each)), default=0) if name in CUMULATIVE else 0
    schema = SUMS[name] if "attempt" in columns(SUMS[name]) else f"{SUMS[name]}, attempt STRING"
    rows = read_folder(spark, f"{out}/sums/{name}", schema)
    counts = F.col("attempt").isin([each.name for each in line if each.batch >= begin])
    return rows.where(counts).select(*columns(SUMS[name]))


def first_day(spark: SparkSession, out: str, line: Sequence[Attempt]) -> date:
    """Return the first day that is not forgotten."""
    found = [row.before for row in sums(spark, out, "forgotten", line).collect()]
    return max(found, default=date.min)


def since(first: date, rows: DataFrame, name: str) -> DataFrame:
    """Return rows of the table *name* of SUMS that are of the day *first* or later. Those of keys have no date."""
    if first == date.min or name not in DATES:
        return rows
    return rows.where(F.coalesce(F.expr(DATES[name]) >= first, F.lit(True)))


def is_cumulative(attempt: Attempt) -> bool:
    return attempt.batch % _EVERY == 0


def with_all_before(own: DataFrame, before: DataFrame, name: str) -> DataFrame:
    """Return sums of a batch with those of all batches before."""
    both = own.select(*columns(SUMS[name])).unionByName(before)
    return both if name in _LISTS else total(both)


def table(spark: SparkSession, out: str, name: str) -> DataFrame:
    """Return the table *name* of REPORT. One that has not been written is empty."""
    return read_folder(spark, f"{out}/report/{name}", REPORT[name])


def literal(path: str) -> str:
    """Quote a path: Spark reads it as a pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def read_folder(spark: SparkSession, folder: str, schema: str | StructType) -> DataFrame:
    """Return the rows in *folder*; none if there is no folder."""
    try:
        rows = spark.read.schema(schema).parquet(literal(folder))
        _ = rows.schema  # Spark Connect does not look for the folder before
        return rows
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], schema)


def documents(out: str) -> Path:
    """Return the folder for documents: *out* if it is on this machine, else the working folder."""
    return here(out) or Path()


def here(folder: str) -> Path | None:
    """Return the path of a folder on this machine."""
    local = folder.removeprefix("file://").removeprefix("file:")
    return None if "://" in local else Path(local)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder. The system releases it when the process ends, even by SIGKILL."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BusyError(f"another run is using {folder}: wait for it, or choose another folder") from None
    finally:
        os.close(lock)


def write(path: Path, content: str) -> None:
    """Write or replace a document, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        new.write_text(content, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
