"""What the folder of results holds: attempts that count, tables, and documents for people.

Sums, and the tables of the report, are written by attempts, each in a folder of its own:

    OUT/sums/<number>.<name>.<parent>/<table>/        sums
    OUT/sums/<number>.<name>.<parent>/files/          the account of its files, written last
    OUT/report/<number>.<name>.<parent>/<table>/      tables of the report
    OUT/report/<number>.<name>.<parent>/files/        which folders have the report's tables, written last

The attempt counts once its account is there. It names its parent, the one before it, as a commit does. Two runs at once
may both write an attempt upon the same parent: readers follow the longest line of accounts, and the older one of two.
The files of the other batch are new files to the next run. So nothing is locked, renamed or overwritten, and whoever is
killed leaves only an attempt that does not count.

Each 32nd batch of sums has no files of its own: it repeats the sums of the 31 before it, and each 1,024th sums of the
1,023 before it. So a line is short, however many batches there were. See upkeep.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from .tables import DATES, PLACES, REPORT, SUMS

#: Batches until their sums are repeated, and reports until old ones are removed.
EVERY: Final = 32
_NONE: Final = "none"
#: Documents are files for people, on this machine. Tables are written by Spark.
MODEL, ADVICE, PAGE = "model.json", "advice.md", "report.html"
NO_SUMS: Final = "there are no sums in {}: run ingest with this folder first"
_ACCOUNT: Final = re.compile(r"/(\d+)\.([^./]+)\.([^./]+)/files/[^/]+$")


@dataclass(frozen=True)
class Attempt:
    """One upon its parent."""

    number: int
    name: str
    #: The name of the one before it, or before all that it repeats.
    parent: str

    @property
    def folder(self) -> str:
        return f"{self.number}.{self.name}.{self.parent}"

    @property
    def first(self) -> int:
        """The first number whose sums it has."""
        repeated = 1
        while self.number % (repeated * EVERY) == 0:
            repeated *= EVERY
        return self.number - repeated + 1


#: Attempts that count, the oldest first.
Line: TypeAlias = Sequence[Attempt]


def following(line: Line) -> Attempt:
    """Return a new attempt upon a *line* of sums."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid4().hex[:8]}"
    made = Attempt(line[-1].number + 1 if line else 1, name, _NONE)
    return replace(made, parent=next((each.name for each in reversed(line) if each.number < made.first), _NONE))


def committed(spark: SparkSession, out: str, root: str = "sums") -> list[Attempt]:
    """Return the attempts that count, the oldest first. Args: root: sums, or report."""
    accounts = read_folder(spark, f"{literal(out)}/{root}/*/files", SUMS["files"])
    places = [match for path in accounts.inputFiles() if (match := _ACCOUNT.search(path))]
    found = {name: Attempt(int(number), name, parent) for number, name, parent in (each.groups() for each in places)}
    line: list[Attempt] = []
    # Names begin with their time.
    at = min(found.values(), key=lambda each: (-each.number, each.name), default=None)
    while at:
        line.append(at)
        at = found.get(at.parent)
    return line[::-1]


def sums(
    spark: SparkSession, out: str, name: str, line: Line | None = None, numbers: Collection[int] | None = None
) -> DataFrame:
    """Return the rows of the table *name* of SUMS. Rows of several batches are not added up: see sums.total().

    Rows of days that are forgotten are left out. Rows of keys have no date.

    Args:
        line: the attempts that count (default: look).
        numbers: only rows of these attempts (default: all of the line).
    """
    every = committed(spark, out) if line is None else line
    folders = any_of(each.folder for each in every if numbers is None or each.number in numbers)
    rows = read_folder(spark, f"{literal(out)}/sums/{folders}/{name}", SUMS[name])
    first = first_day(spark, out, every) if name in DATES else date.min
    return rows if first == date.min else rows.where(F.coalesce(F.expr(DATES[name]) >= first, F.lit(True)))


def first_day(spark: SparkSession, out: str, line: Sequence[Attempt]) -> date:
    """Return the first day that is not forgotten."""
    return max((row.before for row in sums(spark, out, "forgotten", line).collect()), default=date.min)


def table(spark: SparkSession, out: str, name: str, places: Sequence[Row] | None = None) -> DataFrame:
    """Return the table *name* of REPORT. One that has not been written is empty.

    Args: places: which folders have it, as PLACES (default: the folders of the newest report).
    """
    known = places_of(spark, out, committed(spark, out, "report")) if places is None else places
    own = [each for each in known if each.table == name]
    days = [f"{each.folder}/{each.date}" for each in own if each.date]
    pattern = f"{literal(out)}/report/{any_of(each.folder for each in own)}/{name}"
    folder = F.regexp_extract("_metadata.file_path", "([^/]+)/[^/]+/[^/]+$", 1)
    return read_folder(spark, pattern, REPORT[name], F.concat_ws("/", folder, "date").isin(*days) if days else None)


def places_of(spark: SparkSession, out: str, reports: Line) -> list[Row]:
    """Return which folders have the tables of the newest of *reports*."""
    folder = reports[-1].folder if reports else _NONE
    return read_folder(spark, f"{literal(out)}/report/{folder}/files", PLACES).collect()


def any_of(names: Iterable[str]) -> str:
    """Return the pattern of folders with these *names*."""
    return f"{{{','.join(sorted(set(names))) or _NONE}}}"


def literal(path: str) -> str:
    """Quote a path: Spark reads it as a pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def read_folder(spark: SparkSession, pattern: str, schema: str | StructType, only: Column | None = None) -> DataFrame:
    """Return the rows in all folders of a *pattern*; none if there is no folder.

    Args: only: a condition (default: all rows).
    """
    try:
        rows = spark.read.schema(schema).parquet(pattern)
        rows = rows if only is None else rows.where(only)
        _ = rows.schema  # Spark Connect does not look for the folder before
        return rows
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], schema).limit(0)  # Spark knows that it is empty, without a job


def valid(rows: DataFrame) -> DataFrame:
    """Replace what is not UTF-8 in the names of *rows*, as in a file of another writer: Python cannot read it."""
    return rows.withColumns({name: F.make_valid_utf8(name) for name, kind in rows.dtypes if kind == "string"})


def documents(out: str) -> Path:
    """Return the folder for documents: *out* if it is on this machine, else the working folder."""
    return here(out) or Path()


def here(folder: str) -> Path | None:
    """Return the path of a folder on this machine."""
    local = folder.removeprefix("file://").removeprefix("file:")
    return None if "://" in local else Path(local)


def write(path: Path, content: str) -> None:
    """Write or replace a document, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        new.write_text(content, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
