"""Takes in a batch of files of a journal: writes the sums of their good rows, their bad rows, and their account.

Rows are read once by their footers, and once for each sum, with the columns that it needs. At first, all rows are taken
to be good. The numbers of rows tell if that is wrong; only then are rows judged twice, and bad ones written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, Final, TypeAlias
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import CUMULATIVE, Attempt, committed, is_cumulative, read_folder, sums, with_all_before
from .journal_files import CHANGED, File, mark_torn, read, rows_by_file, set_lost, with_footers
from .rules import good, quarantined
from .session import at_once
from .sums import OF_ROWS, activity, daily, words
from .tables import DATES, SUMS, columns

#: Smaller files cost more to be opened once for each sum than their rows cost to be kept.
_SMALL: Final = 200_000

#: Tables that together have all dates of a batch.
_DATED: Final = ("daily", "waiting", "snapshots", "losses")


class LostRowsError(PurgatoryError):
    """Rows of some files are neither counted nor quarantined, so that nothing of their batch counts."""


#: Rows that are in no sum, by table, day of their file, and reason.
Losses = Counter[tuple[str, str, str]]


#: Rows of the tables sealed and forgotten.
Marks: TypeAlias = Mapping[str, Sequence[tuple[Any, ...]]]


def take_in(
    spark: SparkSession, out: str, line: Sequence[Attempt], files: Sequence[File], marks: Marks | None = None
) -> tuple[Sequence[Attempt], Losses] | None:
    """Take in *files* and *marks* as a batch upon the *line* of attempts that count.

    Sets what became of the rows of each file.

    Returns: the line with this batch, and the rows that are in no sum; None: another run was faster, so that the batch
        does not count.
    Raises: LostRowsError: the counts do not add up.
    """
    while True:
        batch = _Batch(spark, out, line)
        try:
            is_written = batch.take(files, marks or {})
        except Exception:
            # Sums are read strictly: a torn file fails them. The next attempt leaves it out.
            if not mark_torn(spark, files):
                raise
        else:
            if not is_written:
                return line, batch.losses
            line = [*line, batch.attempt]
            return (line, batch.losses) if committed(spark, out) == line else None


class _Batch:
    """One attempt to take in some files."""

    def __init__(self, spark: SparkSession, out: str, line: Sequence[Attempt]) -> None:
        self._spark, self._out, self._line = spark, out, line
        number, parent = (line[-1].batch + 1, line[-1].name) if line else (1, "none")
        self.attempt = Attempt(number, f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid4().hex[:8]}", parent)
        self.losses = Losses()

    def take(self, files: Sequence[File], marks: Marks) -> bool:
        """Return whether there is something to count."""
        readable = with_footers(self._spark, files)
        parts = {"operations": self._operations, "statistics": self._statistics}
        at_once(partial(self._read, [e for e in readable if e.table == name], part) for name, part in parts.items())
        known = [each for each in files if each.problem != CHANGED]
        if known or marks:
            self._account(known, marks)
        return bool(known or marks)

    def _read(self, files: Sequence[File], sum_up: Callable[[DataFrame, Sequence[File]], None]) -> None:
        if files:
            rows = read(self._spark, files)
            are_small = len(files) > 1 and sum(each.length for each in files) < _SMALL * len(files)
            sum_up(rows.persist() if are_small else rows, files)
            rows.unpersist()

    def _operations(self, rows: DataFrame, files: Sequence[File]) -> None:
        once, has_names = self._once(rows, files)
        self._save(activity(good(once, "operations")), "activity")
        counted, minutes = self._counted()
        if counted != _expected(files):
            once, has_names = self._once(self._without_bad(rows, files), files)
            self._save(activity(once), "activity")
            counted, minutes = self._counted()
            _require(counted, once, files)
        names = ["hours", "waiting", "keys", *["names"] * has_names, *["ends"] * (minutes <= 60)]
        wanted = {name: OF_ROWS[name](once) for name in names} | {"daily": daily(self._own("activity"))}
        at_once(partial(self._save, rows, name) for name, rows in wanted.items())
        self._compare_sums()

    def _statistics(self, rows: DataFrame, files: Sequence[File]) -> None:
        self._save(good(rows, "statistics").select(*columns(SUMS["snapshots"])), "snapshots")
        counted = self._own("snapshots").count()
        if counted != _expected(files):
            _require(counted, self._without_bad(rows, files), files)

    def _once(self, rows: DataFrame, files: Sequence[File]) -> tuple[DataFrame, bool]:
        """Return *rows* without copies of others, in this batch or before it, and whether keys have names."""
        set_lost(files, "duplicates", {})
        self._save(words(rows), "seen")
        found = repeated(self._own("seen"), self._before("seen"))
        has_repeats, has_names = found.agg(F.bool_or("is_repeated"), F.sum("named") > 0).collect()[0]
        if not has_repeats:
            return rows, bool(has_names)
        repeats = found.where("is_repeated").select("instance", "word", "before")
        copies = placed(rows, repeats).where("place > 1").groupBy(F.xxhash64("file").alias("uri_hash")).count()
        set_lost(files, "duplicates", {row.uri_hash: row["count"] for row in copies.collect()})
        return first_copies(rows, repeats), bool(has_names)

    def _without_bad(self, rows: DataFrame, files: Sequence[File]) -> DataFrame:
        """Write the bad rows, and return the others."""
        table = files[0].table
        folder = f"{self._out}/quarantine/{table}/attempt={self.attempt.name}"
        bad_rows = quarantined(rows, table)
        bad_rows.write.mode("overwrite").parquet(folder)
        by = ("date", "reason", F.xxhash64("file").alias("uri_hash"))
        bad = Counter[int]()
        for row in read_folder(self._spark, folder, bad_rows.schema).groupBy(*by).count().collect():
            bad[row.uri_hash] += row["count"]
            self.losses[table, row.date, row.reason] += row["count"]
        set_lost(files, "bad", bad)
        return good(rows, table)

    def _compare_sums(self) -> None:
        """Raises: LostRowsError: the tables of sums are not of the same operations."""
        names = ("activity", "daily", "hours", "keys")
        sums_of = [self._own(name).agg(F.sum("operations").alias("operations")) for name in names]
        found = [row.operations or 0.0 for row in reduce(DataFrame.union, sums_of).collect()]
        if max(found) - min(found) > 1e-9 * max(found):
            raise LostRowsError(
                f"the sums {', '.join(names)} must be of as many operations, got {found}; run ingest again"
            )

    def _account(self, files: Sequence[File], marks: Marks) -> None:
        for each in files:
            if each.problem:
                self.losses[each.table, each.date, f"file {each.problem}"] += max(each.rows_in, 1)
        losses = [(day, what, rows) for (_, day, what), rows in self.losses.items()]
        if losses:
            frame = self._spark.createDataFrame(losses, "day STRING, what STRING, rows BIGINT")
            self._save(frame.select(F.expr("try_cast(day AS DATE) AS date"), "what", "rows").coalesce(1), "losses")
        dates = [self._own(name).select(F.expr(DATES[name]).alias("date")) for name in _DATED]
        touched = reduce(DataFrame.union, dates).where("date IS NOT NULL").distinct()
        self._save(touched.withColumn("attempt", F.lit(self.attempt.name)).coalesce(1), "touched")
        now = time.time_ns() // 1000
        names = [each for each in columns(SUMS["files"]) if each != "read_us"]
        rows = [(*(getattr(each, name) for name in names), now) for each in files]
        account = self._spark.createDataFrame(rows, SUMS["files"])
        for name, marked in marks.items():
            self._save(self._spark.createDataFrame(marked, SUMS[name]).coalesce(1), name)
        if is_cumulative(self.attempt):
            for name in CUMULATIVE[1:]:
                every = with_all_before(self._own(name), self._before(name), name)
                every.write.parquet(f"{self._out}/sums/{name}/attempt={self.attempt.name}")
            account = account.union(self._before("files"))
        name = f"batch={self.attempt.batch}/attempt={self.attempt.name}/parent={self.attempt.parent}"
        # In order: a reader of the last days passes over the pages of all others.
        account.coalesce(1).sortWithinPartitions("day", "path").write.parquet(f"{self._out}/sums/files/{name}")

    def _folder(self, name: str) -> str:
        """Return the folder of the batch's own sums."""
        place = "own" if is_cumulative(self.attempt) and name in CUMULATIVE else "sums"
        return f"{self._out}/{place}/{name}/attempt={self.attempt.name}"

    def _save(self, rows: DataFrame, name: str) -> None:
        rows.write.mode("overwrite").parquet(self._folder(name))

    def _own(self, name: str) -> DataFrame:
        return read_folder(self._spark, self._folder(name), SUMS[name])

    def _before(self, name: str) -> DataFrame:
        return sums(self._spark, self._out, name, self._line)

    def _counted(self) -> tuple[int, int]:
        """Return the rows in the activity, and how many minutes they span."""
        span = F.max("minute") - F.min("minute")
        rows, minutes = self._own("activity").agg(F.sum("rows"), span).collect()[0]
        return rows or 0, minutes or 0


def _expected(files: Sequence[File]) -> int:
    return sum(each.rows_in - each.bad - each.duplicates for each in files)


def _require(counted: int, rows: DataFrame, files: Sequence[File]) -> None:
    """Raises: LostRowsError: *counted* are not the *rows* that have to be counted."""
    if counted != _expected(files):
        found = rows_by_file(rows)
        wrong = [each.path for each in files if found.get(each.uri_hash, 0) != _expected([each])]
        why = f"{_expected(files):,} rows must be counted, got {counted:,}; the rows of {wrong or 'no file'} differ"
        raise LostRowsError(f"{why}; nothing of these {len(files):,} files counts yet, run ingest again")


def repeated(own: DataFrame, before: DataFrame) -> DataFrame:
    """Words -> the same + the bits that came ``before``, and whether a number is there twice, or came before."""
    known = own.select("instance", "word").join(before, ["instance", "word"]).groupBy("instance", "word")
    both = own.join(known.agg(F.bit_or("bits").alias("before")), ["instance", "word"], "left").fillna(0, ["before"])
    twice = (F.col("rows") > F.bit_count("bits")) | (F.col("bits").bitwiseAND(F.col("before")) != 0)
    return both.withColumn("is_repeated", F.coalesce(twice, F.lit(False)))


def placed(rows: DataFrame, repeats: DataFrame) -> DataFrame:
    """Rows of words in *repeats* + place: 1 for the first copy, unless one came before."""
    came = F.expr("shiftright(before, CAST(sequence & 63 AS INT)) & 1")
    order = Window.partitionBy("instance", "sequence").orderBy("file")
    in_words = rows.withColumn("word", F.expr("sequence div 64")).join(repeats, ["instance", "word"])
    return in_words.withColumn("place", F.row_number().over(order) + came)


def first_copies(rows: DataFrame, repeats: DataFrame) -> DataFrame:
    """Rows without those that came before. Only rows of words in *repeats* are compared."""
    others = rows.withColumn("word", F.expr("sequence div 64")).join(repeats, ["instance", "word"], "left_anti")
    first = placed(rows, repeats).where("place = 1")
    return others.select(*rows.columns).union(first.select(*rows.columns))
