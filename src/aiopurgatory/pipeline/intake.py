"""Takes in a batch of files of a journal: writes the sums of their good rows, their bad rows, and their account.

Rows are read once by their footers, and once for each sum, with the columns that it needs. A sum is counted while it is
written. At first, all rows are taken to be good. The numbers of rows tell if that is wrong; only then are rows judged
twice, and bad ones written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import Line, committed, following, literal, read_folder, sums
from .journal_files import CHANGED, File, mark_torn, read, rows_by_file, together, with_footers
from .rules import good, quarantined
from .session import at_once
from .sums import OF_ROWS, activity, daily, total, words
from .tables import DATES, SUMS, columns
from .upkeep import merged

#: Smaller files cost more to be opened once for each sum than their rows cost to be kept.
_SMALL: Final = 200_000


class LostRowsError(PurgatoryError):
    """Rows of some files are neither counted nor quarantined, so that nothing of their batch counts."""


_N, _OPERATIONS, _DAYS = "count(1) AS n", "sum(operations) AS operations", "collect_set({}) AS days"
#: What is counted of a table while it is written.
_COUNTED: Final = {
    "seen": ("coalesce(min(word), 0) AS low", "coalesce(max(word), 0) AS high"),
    "activity": ("coalesce(sum(rows), 0) AS n", "coalesce(max(minute) - min(minute), 0) AS minutes", _OPERATIONS),
    "daily": (_OPERATIONS, _DAYS.format("date")),
    **dict.fromkeys(["hours", "keys"], (_OPERATIONS,)),
    **dict.fromkeys(["waiting", "losses"], (_DAYS.format("date"),)),
    "snapshots": (_N, _DAYS.format(DATES["snapshots"])),
}
#: Rows that are in no sum, by table, day of their file, and reason.
Losses = Counter[tuple[str, str, str]]
#: Rows of the tables sealed and forgotten.
Marks: TypeAlias = Mapping[str, Sequence[tuple[Any, ...]]]


def take_in(
    spark: SparkSession, out: str, line: Line, files: Sequence[File], marks: Marks | None = None
) -> tuple[Line, Losses] | None:
    """Take in *files* and *marks* as a batch upon the *line* of attempts that count.

    Sets what became of the rows of each file.

    Returns: the line with this batch, and the rows that are in no sum; None: another run was faster, so that the batch
        does not count.
    Raises: LostRowsError: the counts do not add up.
    """
    while (upon := merged(spark, out, line)) is not None:
        line, batch = upon, _Batch(spark, out, upon)
        try:
            is_written = batch.take(files, marks or {})
        except Exception:
            if committed(spark, out) != line:  # its folder may be gone
                return None
            # Sums are read strictly: a torn file fails them. The next attempt leaves it out.
            if not mark_torn(spark, files):
                raise
        else:
            line = [*line, batch.attempt] if is_written else line
            return (line, batch.losses) if committed(spark, out) == line else None
    return None


class _Batch:
    """One attempt to take in some files."""

    def __init__(self, spark: SparkSession, out: str, line: Line) -> None:
        self._spark, self._out, self._line = spark, out, line
        self.attempt = following(line)
        self.losses = Losses()
        #: Those whose report it changes.
        self._days = set[date]()

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
            rows = together(read(self._spark, files), files)
            are_small = len(files) > 1 and sum(each.length for each in files) < _SMALL * len(files)
            sum_up(rows.persist() if are_small else rows, files)
            rows.unpersist()

    def _operations(self, rows: DataFrame, files: Sequence[File]) -> None:
        once = self._once(rows, files)
        found = self._save(activity(good(once, "operations")), "activity")
        if found["n"] != _expected(files):
            once = self._once(self._without_bad(rows, files), files)
            found = self._save(activity(once), "activity")
            _require(found["n"], once, files)
        names = [name for name in OF_ROWS if name != "ends" or found["minutes"] <= 60]
        wanted = {name: OF_ROWS[name](once) for name in names}
        wanted["daily"] = daily(together(self._own("activity"), files))
        saved = at_once(partial(self._save, rows, name) for name, rows in wanted.items())
        sizes = [each["operations"] or 0.0 for each in (found, *saved) if "operations" in each]
        if max(sizes) - min(sizes) > 1e-9 * max(sizes):
            raise LostRowsError(f"all sums must be of as many operations, got {sizes}; run ingest again")

    def _statistics(self, rows: DataFrame, files: Sequence[File]) -> None:
        found = self._save(good(rows, "statistics").select(*columns(SUMS["snapshots"])), "snapshots")
        if found["n"] != _expected(files):
            _require(found["n"], self._without_bad(rows, files), files)

    def _once(self, rows: DataFrame, files: Sequence[File]) -> DataFrame:
        """Return *rows* without copies of others, in this batch or before it."""
        near = "word BETWEEN {low} AND {high}".format(**self._save(words(rows), "seen"))
        before = sums(self._spark, self._out, "seen", self._line).where(near)
        repeats = repeated(together(both_words(self._own("seen"), before), files))
        if repeats.isEmpty():
            return rows
        copies = placed(rows, repeats).where("place > 1").groupBy(F.xxhash64("file").alias("uri_hash")).count()
        found = {row.uri_hash: row["count"] for row in copies.collect()}
        for each in files:
            each.duplicates = found.get(each.uri_hash, 0)
        return first_copies(rows, repeats)

    def _without_bad(self, rows: DataFrame, files: Sequence[File]) -> DataFrame:
        """Write the bad rows, and return the others."""
        table, bad = files[0].table, Counter[int]()
        self._save(quarantined(rows, table), f"quarantined_{table}")
        by = ("date", "reason", F.xxhash64("file").alias("uri_hash"))
        for row in self._own(f"quarantined_{table}").groupBy(*by).count().collect():
            bad[row.uri_hash] += row["count"]
            self.losses[table, row.date, row.reason] += row["count"]
        for each in files:
            each.bad, each.duplicates = bad[each.uri_hash], 0
        return good(rows, table)

    def _account(self, files: Sequence[File], marks: Marks) -> None:
        for each in files:
            if each.problem:
                self.losses[each.table, each.date, f"file {each.problem}"] += max(each.rows_in, 1)
        losses = [(day, what, rows) for (_, day, what), rows in self.losses.items()]
        if losses:
            frame = self._spark.createDataFrame(losses, "day STRING, what STRING, rows BIGINT")
            self._save(frame.select(F.expr("try_cast(day AS DATE) AS date"), "what", "rows"), "losses")
        touched = [(day, self.attempt.number, self.attempt.name) for day in (None, *sorted(self._days))]
        now = time.time_ns() // 1000
        names = [each for each in columns(SUMS["files"]) if each != "read_us"]
        rows = [(*(getattr(each, name) for name in names), now) for each in files]
        for name, made in {"touched": touched, **marks, "files": rows}.items():
            frame = self._spark.createDataFrame(made, SUMS[name]).coalesce(1)
            self._save(frame.sortWithinPartitions(*frame.columns), name)

    def _save(self, rows: DataFrame, name: str) -> dict[str, Any]:
        """Write a table; return what is counted of it."""
        seen, wanted = Observation(), map(F.expr, _COUNTED.get(name, (_N,)))
        rows.observe(seen, *wanted).write.mode("overwrite").parquet(self._folder(name))
        self._days.update(seen.get.get("days", ()))
        return seen.get

    def _folder(self, name: str) -> str:
        return f"{self._out}/sums/{self.attempt.folder}/{name}"

    def _own(self, name: str) -> DataFrame:
        return read_folder(self._spark, literal(self._folder(name)), SUMS[name])


def _expected(files: Sequence[File]) -> int:
    return sum(each.rows_in - each.bad - each.duplicates for each in files)


def _require(counted: int, rows: DataFrame, files: Sequence[File]) -> None:
    """Raises: LostRowsError: *counted* are not the *rows* that have to be counted."""
    if counted != _expected(files):
        found = rows_by_file(rows)
        wrong = [each.path for each in files if found.get(each.uri_hash, 0) != _expected([each])]
        why = f"{_expected(files):,} rows must be counted, got {counted:,}; the rows of {wrong or 'no file'} differ"
        raise LostRowsError(f"{why}; nothing of these {len(files):,} files counts yet, run ingest again")


def both_words(own: DataFrame, before: DataFrame) -> DataFrame:
    """Words -> the same, and the words that came ``before``."""
    known = before.selectExpr("instance", "word", "0L AS bits", "0L AS rows", "bits AS before")
    return own.withColumn("before", F.lit(0).cast("bigint")).unionByName(known)


def repeated(words: DataFrame) -> DataFrame:
    """Words -> those with a number that is there twice, or came ``before``."""
    found = total(words).where("rows > bit_count(bits) OR bits & before != 0")
    return found.select("instance", "word", "before")


def placed(rows: DataFrame, repeats: DataFrame) -> DataFrame:
    """Rows of words in *repeats* + place: 1 for the first copy, unless one came before."""
    came = F.expr("shiftright(before, CAST(sequence & 63 AS INT)) & 1")
    order = Window.partitionBy("instance", "sequence").orderBy("file")
    in_words = rows.withColumn("word", F.expr("sequence div 64")).join(repeats, ["instance", "word"])
    return in_words.withColumn("place", F.row_number().over(order) + came)


def first_copies(rows: DataFrame, repeats: DataFrame) -> DataFrame:
    """Rows without the rows that came before. Only rows of words in *repeats* are compared."""
    others = rows.withColumn("word", F.expr("sequence div 64")).join(repeats, ["instance", "word"], "left_anti")
    first = placed(rows, repeats).where("place = 1")
    return others.select(*rows.columns).union(first.select(*rows.columns))
