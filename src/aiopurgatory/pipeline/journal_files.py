"""The files of a journal: which are new, how many rows each has, and why one cannot be read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import literal
from .failures import OF_JOBS, problem_of_file
from .tables import JOURNAL, columns

#: The problem of a file that gets no account: if it is there again, it is new.
CHANGED: Final = "changed or was deleted while it was read"
NO_JOURNAL: Final = "there is no journal in {}: give the folder that Journal() writes to"
#: Columns of the table files. A file that differs in one of them from all that were read is new.
IDENTITY: Final = ("path", "length", "modified_us")
_DAY: Final = re.compile("/(?:operations|statistics)/date=([^/]+)/")
_PLACE: Final = re.compile(r"/(operations|statistics)/date=([^/]+)/hour=[^/]+/[^/]+$")
#: For scans that tell which files are torn. Sums are read strictly.
_LENIENT: Final = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}

#: So many files, of so many bytes, cost less in one task than Spark's plans for several.
_FEW, _LITTLE = 64, 1 << 24


@dataclass
class File:
    """A file of the journal, and what became of its rows."""

    path: str
    uri_hash: int
    length: int
    modified_us: int
    table: str = ""
    date: str = ""
    #: Why its rows are not counted.
    problem: str | None = None
    rows_in: int = 0
    bad: int = 0
    duplicates: int = 0

    @property
    def day(self) -> str:
        return day_of(self.path)


def unread(files: DataFrame, paths: Sequence[str], known: DataFrame) -> list[File]:
    """Return the files of listed() that are not among *known* ones, in order of their paths."""
    seen = Observation()
    there = files.observe(seen, F.count(F.lit(1)).alias("files"))
    new = there.join(known, [*IDENTITY], "left_anti").select("path", "uri_hash", "length", "modified_us")
    # Spark drops the observation of no rows.
    found = [File(*row) for row in new.collect()] if paths else []
    if paths and seen.get["files"] < len(paths):
        others = [row.path for each in (files, known.where("length = 0")) for row in each.select("path").collect()]
        found += [File(path, 0, 0, 0) for path in set(paths).difference(others)]
    return sorted(found, key=lambda each: each.path)


def listed(spark: SparkSession, journal: str, sealed: Collection[str]) -> tuple[DataFrame, list[str]]:
    """List the files of the *journal*, but for *sealed* days.

    Returns: rows of IDENTITY, and ``uri_hash``, without empty files, which Spark leaves out; the paths of all files.
    Raises: PurgatoryError: there is no journal.
    """
    options = {"recursiveFileLookup": "true", "pathGlobFilter": "*.parquet"}
    columns = "path", F.xxhash64("_metadata.file_path"), "length", F.unix_micros("modificationTime")
    try:
        found = spark.read.format("binaryFile").options(**options).load(_but(journal, sealed))
        files = found.select(*columns).toDF("path", "uri_hash", "length", "modified_us")
        paths = [unquote(each).replace("file:///", "file:/", 1) for each in found.inputFiles()]
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        if not sealed:
            raise PurgatoryError(NO_JOURNAL.format(journal)) from None
        return spark.createDataFrame([], "path STRING, uri_hash BIGINT, length BIGINT, modified_us BIGINT"), []
    return files, paths


def day_of(path: str) -> str:
    """Return the day in the *path* of a file; "" if it lies in no folder of a day."""
    day = _DAY.search(path)
    return day[1] if day else ""


def _but(journal: str, sealed: Collection[str]) -> str:
    """Return the pattern of all in the *journal* but its *sealed* days."""
    if not sealed:
        return literal(journal)
    tables, days = ["operations", "statistics"], _others([f"date={day}" for day in sealed])
    return f"{literal(journal)}/{{{','.join([_others(tables), *(f'{table}/{days}' for table in tables)])}}}"


def _others(names: Collection[str]) -> str:
    """Return the pattern of all names but these and hidden ones, by their first letter that differs."""
    following = defaultdict[str, set[str]](set, {"": {".", "_"}})
    for name in names:
        for n, letter in enumerate(name):
            following[name[:n]].add(letter)
    others = [f"{literal(name)}[^{''.join(sorted(letters))}]*" for name, letters in following.items()]
    return f"{{{','.join([*others, *filter(None, following), *(f'{literal(name)}?*' for name in names)])}}}"


def located(files: list[File]) -> list[File]:
    """Set the table and the date of *files*, or the problem of files that lie elsewhere; return all."""
    places = [_PLACE.search(each.path) for each in files]
    roots = [each.path[: place.start()] for each, place in zip(files, places, strict=True) if place]
    root = min(roots, key=len, default="")
    for each, place in zip(files, places, strict=True):
        if place and each.path[: place.start()] == root:
            each.table, each.date = place[1], place[2]
        else:
            each.problem = "lies in no folder of a day and an hour"
    return files


def read(spark: SparkSession, files: Sequence[File], **options: str) -> DataFrame:
    """Return the rows of *files* of one table, with the file's URI and the time when it was written."""
    table = files[0].table
    options |= {"basePath": files[0].path[: files[0].path.rindex("/date=")], "datetimeRebaseMode": "CORRECTED"}
    rows = spark.read.schema(JOURNAL[table]).options(**options).parquet(*(literal(each.path) for each in files))
    file = (F.col("_metadata.file_path").alias("file"), F.col("_metadata.file_modification_time").alias("modified"))
    return rows.select("*", *file)


def together(rows: DataFrame, files: Sequence[File]) -> DataFrame:
    """Return *rows* in one part if they are of few *files*: then Spark neither sends rows around nor plans for it."""
    are_few = len(files) <= _FEW and sum(each.length for each in files) <= _LITTLE
    return rows.coalesce(1) if are_few else rows


def with_footers(spark: SparkSession, files: Sequence[File]) -> list[File]:
    """Set how many rows *files* have; return the files that can be read."""
    there = [each for each in files if not each.problem]
    reader = spark.read.schema("sequence BIGINT").options(recursiveFileLookup="true", **_LENIENT)

    def count(some: Sequence[File]) -> dict[int, int]:
        rows = together(reader.parquet(*(literal(each.path) for each in some)), some)
        return rows_by_file(rows.select(F.col("_metadata.file_path").alias("file")))

    found = _rows_of_readable(there, count)
    for each in there:
        each.rows_in = found.get(each.uri_hash, 0)
        # A torn file has no footer that counts. An empty one has none either, but can be read.
        each.problem = None if each.uri_hash in found else problem_of(spark, each)
    return [each for each in there if not each.problem]


def mark_torn(spark: SparkSession, files: Sequence[File]) -> bool:
    """Set the problem of each of *files* from which not all rows and columns can be read; return whether one has."""
    torn = False
    for table, schema in JOURNAL.items():
        own = [each for each in files if each.table == table and not each.problem]
        found = _rows_of_readable(own, partial(_count_all, spark, columns(schema)))
        for each in own:
            each.bad = each.duplicates = 0
            if found.get(each.uri_hash, 0) != each.rows_in:
                each.problem, torn = problem_of(spark, each) or CHANGED, True
    return torn


def _count_all(spark: SparkSession, names: Sequence[str], files: Sequence[File]) -> dict[int, int]:
    return rows_by_file(read(spark, files, **_LENIENT), *names)


def _rows_of_readable(files: Sequence[File], count: Callable[[Sequence[File]], dict[int, int]]) -> dict[int, int]:
    """Count the rows of the *files* that can be scanned. The scan passes over most others, and some fail it."""
    try:
        return count(files) if files else {}
    except OF_JOBS:
        half = len(files) // 2
        return {} if not half else _rows_of_readable(files[:half], count) | _rows_of_readable(files[half:], count)


def problem_of(spark: SparkSession, file: File) -> str | None:
    """Return why *file* cannot be read; None: it can. An error of the machines passes."""
    if not file.length:
        return "is empty, of 0 bytes"
    try:
        rows_by_file(read(spark, [file]), *columns(JOURNAL[file.table]))
    except OF_JOBS as error:
        is_gone = "PATH_NOT_FOUND" in str(error) or "FILE_NOT_EXIST" in str(error)
        return CHANGED if is_gone else problem_of_file(error)
    return None


def rows_by_file(rows: DataFrame, *columns: str) -> dict[int, int]:
    """Count rows by file. Without *columns*, only footers are read."""
    counted = [F.count(name).alias(name) for name in columns]
    by_file = rows.groupBy(F.xxhash64("file").alias("uri_hash")).agg(F.count(F.lit(1)).alias("n"), *counted)
    return {row.uri_hash: row.n for row in by_file.collect()}
