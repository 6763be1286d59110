"""Journal -> clean table, by the date on which an operation ended (UTC) and by purgatory.

Rows that are there twice are dropped. What is impossible is set aside in the folder quarantine, with its reason: rows
(a negative wait, an unknown outcome) and whole files (torn, or with a column of another type). Nothing is lost
silently: rows in = rows out + duplicates + set aside, or the stage fails.

  JOURNAL/operations/**.parquet  ->  OUT/operations/date=.../purgatory=.../*.parquet
  JOURNAL/statistics/**.parquet  ->  OUT/statistics/date=.../purgatory=.../*.parquet
                                     OUT/quarantine/{operations,statistics,files}/
                                     OUT/ingest.json, the counts

Run again, it replaces the days that it finds: a late file is taken in by the next run, and what can be read no more is
gone by then. With --first and --last only these days are made anew; the journal must still hold them, and the days
before and after: the file in which a day ends has rows of the next one. When old days of the journal are deleted, run
with --first, a day after the oldest one left.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .cleaning.journal_tables import DAY, OPERATIONS, STATISTICS, Table, between
from .cleaning.judging import NO_NAME, reason
from .cleaning.survey import delivered_twice, survey
from .spark import folders
from .spark.session import session

_ONE_DAY: Final = timedelta(days=1)
# Of values that hardly repeat, a dictionary is made for nothing.
_NO_DICTIONARY: Final = {
    f"parquet.enable.dictionary#{name}": "false" for name in ("sequence", "watched_at", "waited_us")
}
# So many files are named one by one in a query, not more.
_MANY: Final = 1_000


class LostRowsError(PurgatoryError):
    """More or fewer rows came out than went in."""


@dataclass
class Counts:
    """What became of the rows of one table. ``rows_in`` is what the feet of the files say."""

    files: int = 0
    rows_in: int = 0
    rows_out: int = 0
    duplicates: int = 0
    #: Rows near the first and the last day that are of other days.
    other_days: int = 0
    #: Rows by the reason why they were set aside.
    set_aside: dict[str, int] = field(default_factory=dict)
    #: Files that cannot be read; how many rows they had is known of some.
    files_set_aside: int = 0
    rows_of_files_set_aside: int = 0

    def check(self) -> None:
        """Raises: LostRowsError: the counts do not add up."""
        out = self.rows_out + self.duplicates + self.other_days + sum(self.set_aside.values())
        if self.rows_in != out + self.rows_of_files_set_aside:
            raise LostRowsError(f"rows must come out as they went in, got {self}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder of the clean table")
    parser.add_argument("--first", type=date.fromisoformat, help="first day to make anew, as 2026-11-21 (default: all)")
    parser.add_argument("--last", type=date.fromisoformat, help="last day to make anew (default: all)")


def run(args: argparse.Namespace) -> None:
    """Ingest, and say what became of the rows."""
    with session("ingest", scratch=args.out, master=args.master, memory=args.memory) as spark:
        counts = ingest(spark, args.journal, args.out, first=args.first, last=args.last)
    for name, of in counts.items():
        print(f"{name}: {of.rows_in:,} rows of {of.files:,} files: {of.rows_out:,} clean, {of.duplicates:,} duplicates")
        for why, rows in sorted(of.set_aside.items()):
            print(f"  {rows:,} rows set aside: {why}")
        if of.files_set_aside:
            print(f"  {of.files_set_aside:,} files set aside, see {args.out}/quarantine/files")


def ingest(
    spark: SparkSession, journal: str, out: str, *, first: date | None = None, last: date | None = None
) -> dict[str, Counts]:
    """Make the clean tables in *out* from the *journal*; returns their counts.

    Args: first, last: the days to make anew; None: without end.
    Raises: LostRowsError: the counts do not add up; PurgatoryError: there is no journal.
    """
    if not folders.exists(spark, f"{journal}/{OPERATIONS.name}"):
        raise PurgatoryError(f"journal must be a folder with {OPERATIONS.name} in it, got {journal}")
    counts = {}
    for table in (OPERATIONS, STATISTICS):
        if folders.exists(spark, f"{journal}/{table.name}"):
            counts[table.name] = _ingest(spark, f"{journal}/{table.name}", out, table, first, last)
    folders.write(spark, f"{out}/ingest.json", json.dumps({name: asdict(of) for name, of in counts.items()}, indent=1))
    return counts


def judged(raw: DataFrame, table: Table) -> DataFrame:
    """table.raw + file_date -> the same + reason, the first rule that a row breaks, null for a good one."""
    return raw.withColumn("reason", reason(table))


def numbered(rows: DataFrame, table: Table) -> DataFrame:
    """table.raw + reason, file, row_index -> the same + copy: 1 for the first good row of its identity."""
    same = Window.partitionBy(*table.identity).orderBy(F.col("reason").isNotNull(), "file", "row_index")
    return rows.withColumn("copy", F.row_number().over(same))


@dataclass
class _Source:
    """The files of one table of the journal, and what the survey says about them."""

    spark: SparkSession
    surveyed: DataFrame
    path: str
    table: Table
    days: tuple[date | None, date | None]
    #: The days of all its files, those asked for and those beside them; None: of files that lie in no day's folder.
    seen: list[date | None]
    #: Those of files that can be read.
    dates: list[date]
    bad: dict[str, str]
    suspects: list[str]

    def rows(self) -> DataFrame:
        """table.raw + file_date, file, row_index, of the files that were surveyed but the bad ones.

        A file that came in since then is of the next run.
        """
        raw = self.table.raw.add("date", "date").add("hour", "string")
        days = ",".join(f"date={day}" for day in self.dates)
        reader = self.spark.read.schema(raw).option("basePath", self.path).option("ignoreCorruptFiles", True)
        rows = reader.parquet(f"{self.path}/{{{days}}}/hour=*/*.parquet")
        file = F.col("_metadata.file_path")
        kept = rows.where(~file.isin(*self.bad)) if self.bad else rows
        names = self.table.raw.names
        return kept.select(
            *names,
            F.col("date").alias("file_date"),
            file.alias("file"),
            F.col("_metadata.row_index").alias("row_index"),
        ).join(F.broadcast(self.surveyed.select("file").distinct()), "file", "left_semi")

    def copies(self) -> DataFrame:
        """Judged rows + copy. Only rows of files that overlap with another are compared with each other."""
        rows = judged(self.rows(), self.table)
        if self.table.counter is None or len(self.suspects) > _MANY:
            return numbered(rows, self.table)
        once = F.lit(1).alias("copy")
        if not self.suspects:
            return rows.select("*", once)
        among = F.col("file").isin(*self.suspects)
        return rows.where(~among).select("*", once).union(numbered(rows.where(among), self.table))

    def clean(self) -> DataFrame:
        """table.clean, of the days asked for."""
        good = self.copies().where("reason IS NULL AND copy = 1").withColumn("date", self.day())
        return good.where(between(F.col("date"), *self.days)).select(*self.table.clean.names)

    def made_anew(self) -> list[date]:
        """The days asked for that the journal has files of."""
        first, last = self.days
        return [day for day in self.seen if day and not (first and day < first) and not (last and day > last)]

    def forget(self, place: str) -> None:
        """Remove what earlier runs have set aside in *place* that this run looked at again."""
        everything = self.days == (None, None)
        for old in [place] if everything else [f"{place}/file_date={day or NO_NAME}" for day in self.seen]:
            folders.remove(self.spark, old)

    def day(self) -> Column:
        return F.date_from_unix_date(F.floor(self.table.at() / DAY).cast("int"))


def _surveyed(spark: SparkSession, path: str, table: Table, first: date | None, last: date | None) -> DataFrame:
    """SURVEY + file_date, of the days asked for and those beside them."""
    day = F.regexp_extract("file", r"/date=(\d{4}-\d{2}-\d{2})/hour=[^/]*/[^/]*$", 1)
    rows = survey(spark, path, table).withColumn("file_date", F.try_to_timestamp(day, F.lit("yyyy-MM-dd")).cast("date"))
    beside = between(F.col("file_date"), first and first - _ONE_DAY, last and last + _ONE_DAY)
    nowhere = F.col("file_date").isNull()
    stray = F.when(nowhere, "lies in no folder of a day and an hour")
    return rows.where(beside | nowhere).withColumn("problem", F.coalesce(stray, "problem"))


def _ingest(spark: SparkSession, path: str, out: str, table: Table, first: date | None, last: date | None) -> Counts:
    surveyed = _surveyed(spark, path, table, first, last).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        seen = surveyed.groupBy("file_date").agg(F.bool_or(F.col("problem").isNull()).alias("readable")).collect()
        dates = sorted(row.file_date for row in seen if row.readable)
        bad = {
            row.file: row.problem for row in surveyed.where("problem IS NOT NULL").select("file", "problem").collect()
        }
        suspects = [row.file for row in delivered_twice(surveyed).limit(_MANY + 1).collect()] if table.counter else []
        source = _Source(
            spark, surveyed, path, table, (first, last), [row.file_date for row in seen], dates, bad, suspects
        )
        total = surveyed.agg(F.count_distinct("file"), F.sum("rows")).collect()[0]
        counts = Counts(files=total[0], rows_in=total[1] or 0)
        stage = f"{out}/.ingest/{table.name}"
        if dates:
            _stage(source, surveyed, stage, counts)
        _write_bad_rows(source, out, counts)
        _write_bad_files(source, surveyed, out, counts)
        counts.check()
        for day in source.made_anew():
            folders.remove(spark, f"{out}/{table.name}/date={day}")
        folders.replace(spark, stage, f"{out}/{table.name}", "date=*/purgatory=*")
    finally:
        surveyed.unpersist()
        folders.remove(spark, f"{out}/.ingest")
    return counts


def _stage(source: _Source, surveyed: DataFrame, stage: str, counts: Counts) -> None:
    """Write the clean rows beside their place, until they are all that can be read."""
    table = source.table
    while True:
        writer = source.clean().write.mode("overwrite").option("partitionOverwriteMode", "static")
        writer.options(**_NO_DICTIONARY).partitionBy("date", "purgatory").parquet(stage)
        counts.rows_out = source.spark.read.schema(table.clean).parquet(stage).count()
        left = counts.rows_in - counts.rows_out - _rows_of(surveyed, source.bad)
        if not left or left == _left_out(source, counts):
            return
        torn = _short(source, surveyed)
        if not torn:
            return  # the counts do not add up, which will be said
        source.bad |= torn


def _left_out(source: _Source, counts: Counts) -> int:
    """Count the rows that are not to come out, by why; returns their sum."""
    good, first = F.col("reason").isNull(), F.col("copy") == 1
    other_day = ~between(source.day(), *source.days)
    bad, counts.duplicates, counts.other_days = (
        source.copies()
        .agg(F.count_if(~good), F.count_if(good & ~first), F.count_if(F.when(good & first, other_day)))
        .collect()[0]
    )
    counts.set_aside = {"": bad} if bad else {}
    return int(bad) + counts.duplicates + counts.other_days


def _write_bad_rows(source: _Source, out: str, counts: Counts) -> None:
    """Replace what earlier runs set aside of the same files."""
    place = f"{out}/quarantine/{source.table.name}"
    source.forget(place)
    if not counts.set_aside:
        return
    rows = judged(source.rows(), source.table).where("reason IS NOT NULL").drop("row_index")
    rows.write.mode("overwrite").partitionBy("file_date").parquet(place)
    aside = source.spark.read.schema(rows.schema).parquet(place).where(F.col("file_date").isin(*source.dates))
    counts.set_aside = {row.reason: row["count"] for row in aside.groupBy("reason").count().collect()}


def _write_bad_files(source: _Source, surveyed: DataFrame, out: str, counts: Counts) -> None:
    place = f"{out}/quarantine/files/table={source.table.name}"
    source.forget(place)
    counts.files_set_aside = len(source.bad)
    counts.rows_of_files_set_aside = _rows_of(surveyed, source.bad)
    if source.bad:
        known = surveyed.groupBy("file", "file_date").agg(F.sum("rows").alias("rows"))
        problems = source.spark.createDataFrame(list(source.bad.items()), "file string, problem string")
        rows = problems.join(known, "file", "left").coalesce(1)
        rows.write.mode("overwrite").partitionBy("file_date").parquet(place)


def _rows_of(surveyed: DataFrame, files: dict[str, str]) -> int:
    if not files:
        return 0
    return surveyed.where(F.col("file").isin(*files)).agg(F.sum("rows")).collect()[0][0] or 0


def _short(source: _Source, surveyed: DataFrame) -> dict[str, str]:
    """The files that have fewer rows to give than they say at their foot."""
    said = surveyed.where("problem IS NULL").groupBy("file").agg(F.sum("rows").alias("said"))
    every_column = F.xxhash64(*source.table.raw.names)  # or those that are not asked for are not read
    found = source.rows().groupBy("file").agg(F.count_if(every_column != 0).alias("found"))
    both = said.where(~F.col("file").isin(*source.bad)).join(found, "file", "left").na.fill(0)
    return {
        row.file: f"torn: {row.found} of {row.said} rows can be read" for row in both.where("found <> said").collect()
    }
