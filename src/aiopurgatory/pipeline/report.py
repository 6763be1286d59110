"""Sums -> the fleet's activity: tables, and one page for people.

Per purgatory, kind and minute: operations by outcome, time waited, lateness, and the number waiting. Also: the hottest
keys, the work of the purgatories, lost rows, and changes since the day before, the largest first.

  OUT/sums  ->  OUT/report/{minutes,days,changes,work}/date=.../*.parquet
                OUT/report/{hot_keys,lost,settings,seconds}/*.parquet
                report.html, a single file that loads nothing else

Percentiles are within 2 %. A sampled row counts as all operations that it stands for. Only days whose sums have changed
since the last report are made again. A run that is killed is made up for by the next one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from . import attempts
from . import report_tables as tables
from .attempts import Attempt
from .page import promises
from .page.page import write_page
from .session import at_once
from .tables import DATES, HOUR, KEYS

_ONE: Final = timedelta(days=1)
#: What the last report was made from.
_MADE: Final = "attempt STRING, library STRING"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder given to ingest")
    parser.set_defaults(needs={"out": ("sums", attempts.NO_SUMS)})
    promises.arguments(parser)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Make the report, and print the path of its page."""
    limits, page = promises.limits_of(args), attempts.documents(args.out) / attempts.PAGE
    with attempts.alone(page.parent):
        report(spark, args.out)
        write_page(spark, args.out, page, limits)
    print(page)


def report(spark: SparkSession, out: str) -> None:
    """Write the tables of the report from the sums in *out*, for the days that have changed since the last report.

    Raises: PurgatoryError: there are no sums.
    """
    line = attempts.committed(spark, out)
    if not line:
        raise PurgatoryError(attempts.NO_SUMS.format(out))
    names, made = [each.name for each in line], attempts.read_folder(spark, f"{out}/report/made", _MADE).first()
    known = made.attempt if made and made.library == aiopurgatory.__version__ else ""
    if known == names[-1]:
        return
    first = attempts.first_day(spark, out, line)
    # Days that are not written anew stay: to remove one, all are.
    old = line[: names.index(known) + 1] if known in names else []
    can_add = bool(old) and attempts.first_day(spark, out, old) == first
    _Report(spark, out, line, names[len(old) :] if can_add else None, first).write()


class _Report:
    """One report: the attempts that it is made from, and the days to make; None: all."""

    def __init__(
        self, spark: SparkSession, out: str, line: Sequence[Attempt], new: Sequence[str] | None, first: date
    ) -> None:
        """Args: new: the names of the attempts that the last report did not know; None: all are."""
        self._spark, self._out, self._line, self._first = spark, out, line, first
        self._touched = attempts.sums(spark, out, "touched", line).collect()
        # The day beside a day with rows is covered up to midnight.
        self._days = None if new is None else _and_beside({day for day, name in self._touched if name in new})

    def write(self) -> None:
        """Write all tables. What they were made from comes last: until then, the next report makes these days again."""
        hours = self._sums("hours").persist()
        parts = partial(self._of_operations, hours), partial(self._by_second, hours), self._of_keys, self._of_snapshots
        at_once(parts)
        self._whole("made", self._spark.createDataFrame([(self._line[-1].name, aiopurgatory.__version__)], _MADE))
        hours.unpersist()

    def _of_operations(self, hours: DataFrame) -> None:
        minutes = tables.minutes(self._of_days("activity"), self._of_days("waiting"), hours)
        self._by_day("minutes", minutes, *KEYS, "minute")
        minutes = _among(attempts.table(self._spark, self._out, "minutes"), self._days)
        self._by_day("days", tables.days(self._of_days("daily"), minutes, hours), *KEYS)
        self._whole("timeouts", tables.timeouts(self._sums("daily"), hours))
        days = _among(attempts.table(self._spark, self._out, "days"), self._days and _and_beside(self._days))
        self._by_day("changes", tables.changes(days), F.desc(F.abs("change")), *KEYS, "measure")

    def _of_keys(self) -> None:
        self._whole("hot_keys", tables.hot_keys(self._sums("keys"), self._sums("names")))

    def _of_snapshots(self) -> None:
        before = self._days and self._days | {day - _ONE for day in self._days}
        snapshots = _among(self._sums("snapshots", before), before, DATES["snapshots"])
        work = tables.work(snapshots).withColumn("date", F.to_date("minute"))
        self._by_day("work", _among(work, self._days), "purgatory", "minute")
        self._whole("lost", tables.lost(self._sums("losses")))
        # Folders of quarantined files may have any date.
        latest = datetime.now(UTC).date() + _ONE
        newest = max((day for day, _ in self._touched if day <= latest), default=date.min + _ONE)
        last = {newest, newest - _ONE}
        self._whole("settings", tables.settings(_among(self._sums("snapshots", last), last, DATES["snapshots"])))

    def _by_second(self, hours: DataFrame) -> None:
        """Write the seconds of a short journal."""
        span = hours.agg(F.max("last_us") - F.min("first_us")).head()
        is_short = span is not None and span[0] is not None and span[0] < HOUR
        if is_short or attempts.table(self._spark, self._out, "seconds").head(1):
            seconds = tables.seconds(self._sums("waiting"), self._sums("ends"), hours)
            self._whole("seconds", seconds.where(F.lit(is_short)).orderBy("second", *KEYS))

    def _sums(self, name: str, days: set[date] | None = None) -> DataFrame:
        """Return the sums of all attempts, or of those that touch *days*."""
        line = self._line
        if days is not None:
            names = {name for day, name in self._touched if day in days}
            line = [each for each in self._line if each.name in names]
        return attempts.since(self._first, attempts.sums(self._spark, self._out, name, line), name)

    def _of_days(self, name: str) -> DataFrame:
        """Return the sums of the days to make."""
        return _among(self._sums(name, None if name in attempts.CUMULATIVE else self._days), self._days, DATES[name])

    def _by_day(self, name: str, rows: DataFrame, *order: str | Column) -> None:
        """Replace the days to make."""
        mode = "static" if self._days is None else "dynamic"
        ordered = rows.repartition("date").sortWithinPartitions("date", *order)
        writer = ordered.write.mode("overwrite").option("partitionOverwriteMode", mode)
        writer.partitionBy("date").parquet(f"{self._out}/report/{name}")

    def _whole(self, name: str, rows: DataFrame) -> None:
        rows.coalesce(1).write.mode("overwrite").parquet(f"{self._out}/report/{name}")


def _among(rows: DataFrame, days: set[date] | None, date_of: str = "date") -> DataFrame:
    """Return the rows of *days*, and those without a date; None: all rows."""
    day = F.expr(date_of)
    return rows if days is None else rows.where(day.isin(*days) | day.isNull())


def _and_beside(days: set[date]) -> set[date]:
    return {day + n * _ONE for day in days for n in (-1, 0, 1)}
