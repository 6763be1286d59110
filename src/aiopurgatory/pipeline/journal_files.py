"""The files of a journal: which are new, how many rows each has, and why one cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import literal
from .tables import JOURNAL, columns

#: The problem of a file that gets no account: if it is there again, it is new.
CHANGED: Final = "changed or was deleted while it was read"
_DAY: Final = re.compile("(.*)/(?:operations|statistics)/date=([^/]+)/")
_PLACE: Final = re.compile(r"/(operations|statistics)/date=([^/]+)/hour=[^/]+/[^/]+$")
_TYPE: Final = re.compile(r"Parquet column \[(\w+)\]. Expected Spark type (\w+), actual Parquet type (\w+)")
#: For scans that tell which files are torn. Sums are read strictly.
_LENIENT: Final = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}


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


#: Pairs of a journal's folder and a day.
Days: TypeAlias = set[tuple[str, str]]


def listed(spark: SparkSession, journal: str) -> list[File]:
    """Return all files of the *journal*, in order of their paths. Raises: PurgatoryError: there is no journal."""
    options = {"recursiveFileLookup": "true", "pathGlobFilter": "*.parquet"}
    try:
        found = spark.read.format("binaryFile").options(**options).load(literal(journal))
        columns = "path", F.xxhash64("_metadata.file_path"), "length", F.unix_micros("modificationTime")
        return sorted((File(*row) for row in found.select(*columns).collect()), key=lambda each: each.path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise PurgatoryError(f"there is no journal in {journal}: give the folder that Journal() writes to") from None


def days_of(paths: Iterable[str]) -> Days:
    """Return the days in *paths* of files."""
    return {(day[1], day[2]) for day in map(_DAY.match, paths) if day}


def without_files(known: Days, there: Days, before: Days) -> Days:
    """Return the *known* days that have no file any more. Journals of which nothing is *there* stay as before."""
    journals = {journal for journal, _ in there}
    return {each for each in known if (each not in there if each[0] in journals else each in before)}


def placed(files: list[File]) -> list[File]:
    """Set the table and the date of *files*, or the problem of those that lie elsewhere; return all."""
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


def with_footers(spark: SparkSession, files: Sequence[File]) -> list[File]:
    """Set how many rows *files* have; return those that can be read."""
    there = [each for each in files if not each.problem]
    reader = spark.read.schema("sequence BIGINT").options(recursiveFileLookup="true", **_LENIENT)
    try:
        rows = reader.parquet(*(literal(each.path) for each in there)) if there else None
        found = rows_by_file(rows.select(F.col("_metadata.file_path").alias("file"))) if rows else {}
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        for each in there:
            each.problem = problem_of(spark, each)
        return with_footers(spark, there)
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
        found = rows_by_file(read(spark, own, **_LENIENT), *columns(schema)) if own else {}
        for each in own:
            each.bad = each.duplicates = 0
            if found.get(each.uri_hash, 0) != each.rows_in:
                each.problem, torn = problem_of(spark, each) or CHANGED, True
    return torn


def set_lost(files: Sequence[File], which: Literal["bad", "duplicates"], found: Mapping[int, int]) -> None:
    """Set how many rows of *files* break a rule, or are copies of others: those *found*, by the hash of their URI."""
    for each in files:
        setattr(each, which, found.get(each.uri_hash, 0))


def problem_of(spark: SparkSession, file: File) -> str | None:
    """Return why *file* cannot be read; None: it can."""
    try:
        rows_by_file(read(spark, [file]), *columns(JOURNAL[file.table]))
    except Exception as error:
        text = str(error)
        if "PATH_NOT_FOUND" in text or "FILE_NOT_EXIST" in text:
            return CHANGED
        if match := _TYPE.search(text):
            return f"column {match[1]} must be of type {match[2].upper()}, got {match[3].upper()}"
        return "is torn, or no Parquet file"
    return None


def rows_by_file(rows: DataFrame, *columns: str) -> dict[int, int]:
    """Count rows by file. Without *columns*, only footers are read."""
    counted = [F.count(name).alias(name) for name in columns]
    by_file = rows.groupBy(F.xxhash64("file").alias("uri_hash")).agg(F.count(F.lit(1)).alias("n"), *counted)
    return {row.uri_hash: row.n for row in by_file.collect()}
