"""Sums -> the fleet's activity: tables, and one page for people.

Per purgatory, kind and minute: operations by outcome, time waited, lateness, and the number waiting. Also: the hottest
keys, the work of the purgatories, lost rows, and changes since the day before, the largest first.

  OUT/sums  ->  OUT/report/.../{minutes,days,changes,work}/*.parquet
                OUT/report/.../{hot_keys,lost,missed,settings,seconds,timeouts}/*.parquet
                OUT/report/.../files/*.parquet, which folders have the tables
                report.html, a single file that loads nothing else

Percentiles are within 2 %. A sampled row counts as all operations that it stands for. Only days whose sums have changed
since the last report are made again. Readers find all tables of one report: the newest that has ended. So several runs
may make one at once, on any machines. One that is killed counts for nothing.
"""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from . import attempts, sums
from . import report_tables as tables
from .page import promises
from .page.page import write_page
from .session import at_once
from .tables import DATES, HOUR, KEYS, PLACES, REPORT
from .upkeep import sweep

_ONE: Final = timedelta(days=1)
_BY_DAY: Final = ("minutes", "days", "changes", "work")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder given to ingest")
    parser.set_defaults(needs={"out": ("sums", attempts.NO_SUMS)})
    promises.arguments(parser)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Make the report, and print the path of its page."""
    limits, page = promises.limits_of(args), attempts.documents(args.out) / attempts.PAGE
    report(spark, args.out)
    write_page(spark, args.out, page, limits)
    print(page)


def report(spark: SparkSession, out: str) -> None:
    """Write the tables of the report from the sums in *out*, for the days that have changed since the last report.

    Raises: PurgatoryError: there are no sums, or other runs have gone on so far that their folders may be gone.
    """
    line = attempts.committed(spark, out)
    if not line:
        raise PurgatoryError(attempts.NO_SUMS.format(out))
    made = _Report(spark, out, line)
    if made.is_new:
        made.write()


class _Report:
    """One report: the attempts that it is made from, and the days to make."""

    def __init__(self, spark: SparkSession, out: str, line: attempts.Line) -> None:
        self._spark, self._out, self._line = spark, out, line
        reports = attempts.committed(spark, out, "report")
        self._attempt, self._old = attempts.following(reports), attempts.places_of(spark, out, reports)
        self._first = attempts.first_day(spark, out, line)
        made = self._old[0] if self._old else Row(attempt="", number=0, library="", first=None)
        self.is_new = (made.attempt, made.library) != (line[-1].name, aiopurgatory.__version__)
        rows = attempts.sums(spark, out, "touched", line)
        touched = tables.touched(rows, [each.number for each in line], made.attempt).collect()
        #: By day: the numbers of the batches of the line that have it.
        self._having = {row.date: row.having for row in touched if row.date}
        # Days that are not written anew stay: to remove one, all are.
        is_same = (made.library, made.first) == (aiopurgatory.__version__, self._first)
        self._adds = is_same and any(row.is_known for row in touched)
        since = made.number if self._adds else 0
        # The day beside a day with rows is covered up to midnight.
        self._days = _and_beside({row.date for row in touched if row.date and row.newest > since})

    def write(self) -> None:
        """Write all tables, and at last where they are: until then, readers find the tables of the report before."""
        hours = self._sums("hours")
        # They are small. As rows of this program, Spark sends them along without a job for each table.
        small = at_once(rows.toArrow for rows in (sums.kinds(hours), tables.spans(hours)))
        kinds, spans = map(self._spark.createDataFrame, small)
        at_once((partial(self._of_operations, hours, kinds, spans), partial(self._by_second, kinds), self._others))
        places = self._places()
        if attempts.committed(self._spark, self._out)[-1].number >= self._line[-1].number + attempts.EVERY:
            raise PurgatoryError("ingest has made many batches meanwhile, and may have removed sums: run report again")
        self._spark.createDataFrame(places, PLACES).coalesce(1).write.parquet(self._folder("files"))
        if self._attempt.number % attempts.EVERY == 0:
            keep = {folder.split(".")[1] for folder in {each[2] for each in (*places, *self._old)}}
            sweep(self._spark, f"{self._out}/report", keep, self._attempt.number)

    def _places(self) -> list[tuple[Any, ...]]:
        """Return where the tables are: this report's, and the tables of other days."""
        made = self._line[-1].name, self._line[-1].number, aiopurgatory.__version__, self._first
        own = [(name, day) for name in REPORT for day in (sorted(self._days) if name in _BY_DAY else [None])]
        stay = [each for each in self._old if self._adds and each.date and each.date not in self._days]
        places = [(name, day, self._attempt.folder) for name, day in own]
        return [(*each, *made) for each in (*places, *((each.table, each.date, each.folder) for each in stay))]

    def _of_operations(self, hours: DataFrame, kinds: DataFrame, spans: DataFrame) -> None:
        minutes = tables.minutes(self._of_days("activity"), self._of_days("waiting"), kinds, spans)
        self._by_day("minutes", minutes, *KEYS, "minute")
        self._by_day("days", tables.days(self._of_days("daily"), self._own("minutes"), kinds, spans), *KEYS)
        self._whole("timeouts", tables.timeouts(self._sums("daily"), hours, kinds))
        beside = _and_beside(self._days) - self._days if self._adds else set()
        others = [each for each in self._old if each.date in beside]
        days = self._own("days").unionByName(attempts.table(self._spark, self._out, "days", others))
        self._by_day("changes", tables.changes(days), F.desc(F.abs("change")), *KEYS, "measure")

    def _others(self) -> None:
        self._whole("hot_keys", tables.hot_keys(self._sums("keys"), self._sums("names")))
        before = self._days | {day - _ONE for day in self._days}
        work = tables.work(self._of_days("snapshots", before)).withColumn("date", F.to_date("minute"))
        self._by_day("work", work, "purgatory", "minute")
        self._whole("lost", tables.lost(self._sums("losses")))
        # Folders of quarantined files may have any date.
        latest = datetime.now(UTC).date() + _ONE
        newest = max((day for day in self._having if day <= latest), default=date.min + _ONE)
        last = self._of_days("snapshots", {newest, newest - _ONE})
        self._whole("settings", tables.settings(last))
        self._whole("missed", tables.missed(last))

    def _by_second(self, kinds: DataFrame) -> None:
        """Write the seconds of a short journal."""
        is_short = bool(kinds.agg(F.max("last_us") - F.min("first_us") < HOUR).collect()[0][0])
        seconds = tables.seconds(self._sums("waiting"), self._sums("ends"), kinds)
        self._whole("seconds", seconds.where(F.lit(is_short)).orderBy("second", *KEYS))

    def _sums(self, name: str, numbers: set[int] | None = None) -> DataFrame:
        return attempts.sums(self._spark, self._out, name, self._line, numbers)

    def _of_days(self, name: str, days: set[date] | None = None) -> DataFrame:
        """Return the sums of *days* (default: those to make)."""
        wanted = self._days if days is None else days
        numbers = {number for day in wanted for number in self._having.get(day, ())}
        return _among(self._sums(name, numbers), wanted, DATES[name])

    def _own(self, name: str) -> DataFrame:
        return attempts.read_folder(self._spark, attempts.literal(self._folder(name)), REPORT[name])

    def _by_day(self, name: str, rows: DataFrame, *order: str | Column) -> None:
        """Write the days to make."""
        ordered = _among(rows, self._days).repartition("date").sortWithinPartitions("date", *order)
        ordered.write.parquet(self._folder(name))

    def _whole(self, name: str, rows: DataFrame) -> None:
        rows.coalesce(1).write.parquet(self._folder(name))

    def _folder(self, name: str) -> str:
        return f"{self._out}/report/{self._attempt.folder}/{name}"


def _among(rows: DataFrame, days: set[date], date_of: str = "date") -> DataFrame:
    """Return the rows of *days*."""
    return rows.where(F.expr(date_of).isin(*days))


def _and_beside(days: set[date]) -> set[date]:
    return {day + n * _ONE for day in days for n in (-1, 0, 1)}
