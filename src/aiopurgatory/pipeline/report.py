"""Clean table -> the fleet's activity: tables, and one page for people.

Per purgatory, kind and minute: operations by outcome, time waited, lateness, and the number waiting. Also: the hottest
keys, the work of the purgatories, lost rows, and changes since the day before, the largest first.

  CLEAN                            ->  OUT/minutes/date=....parquet
                                       OUT/{days,changes,hot_keys,work,lost,settings,seconds}/*.parquet
                                       OUT/report.html, a single file that loads nothing else

It adds up the sums written by ingest. Percentiles are within 2 %. A sampled row counts as all operations it
stands for. Each file is replaced atomically, so no reader sees half of one.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from .cleaning.clean_table import published
from .cleaning.journal_tables import OPERATIONS
from .cleaning.versions import NOWHERE, Manifest
from .minutes.changes import changes
from .minutes.hot_keys import fan_out_of_day, hot_keys, merged, top_keys
from .minutes.measures import DAYS, DaySums, Spans
from .minutes.sums import widen
from .minutes.units import EPOCH, INSTANT
from .minutes.work import done, dropped, settings, work
from .page.page import page
from .page.promises import Limits
from .spark import folders
from .spark.session import stage_session
from .spark.tasks import spread
from .workload.model import expected_shares, read_model

TOP: Final = 20
#: A shorter range is reported by the second, too.
SHORT: Final = timedelta(hours=1)
LOST: Final = pa.schema([("date", pa.date32()), ("minute", INSTANT), ("what", pa.string()), ("rows", pa.int64())])
_ONE_DAY: Final = timedelta(days=1)
_KEYS_PER_TASK: Final = 4_000_000
_LIMITS: Final[dict[str, tuple[type, str]]] = {
    "max_expired_share": (float, "share of a purgatory's operations that may expire"),
    "max_lateness_ms": (float, "99 %% of expirations must be at most this late, in ms"),
    "max_missed_share": (float, "share of operations that may be completed only by the last try, at their deadline"),
    "max_dropped_rows": (float, "rows that all journals together may drop in a minute"),
    "fewest": (int, "do not judge a purgatory by minutes with fewer operations"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("clean", help="folder written by ingest")
    parser.add_argument("out", help="folder for the report")
    parser.add_argument("--first-day", type=date.fromisoformat, help="first day, as 2026-11-21 (default: all)")
    parser.add_argument("--last-day", type=date.fromisoformat, help="last day (default: all)")
    parser.add_argument("--top", type=int, default=TOP, help=f"hot keys to list per purgatory (default: {TOP})")
    promises = parser.add_argument_group("promises (limits that each minute keeps or breaks)")
    for name, (kind, about) in _LIMITS.items():
        default = getattr(Limits, name)
        about = f"{about} (default: {default:g})"
        promises.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=about)
    about = "model.json, written by fit: sets the share that may expire, unless --max-expired-share is given"
    promises.add_argument("--model", type=Path, metavar="FILE", help=about)


def run(args: argparse.Namespace) -> None:
    """Make the report, and print the path of its page."""
    given = {name: getattr(args, name) for name in _LIMITS}
    limits = Limits(**given, expected_shares=expected_shares(read_model(args.model)) if args.model else {})
    with stage_session("report", args) as spark:
        report(spark, args.clean, args.out, first=args.first_day, last=args.last_day, top=args.top)
        out = folders.qualified(spark, args.out)
    write_page(out, limits)
    print(f"{args.out}/report.html")


def report(
    spark: SparkSession,
    clean: str,
    out: str,
    *,
    first: date | None = None,
    last: date | None = None,
    top: int = TOP,
) -> None:
    """Write the tables of the report to *out*, from the tables in *clean*.

    Args:
        first, last: the first and last day of the report (default: None, no limit).
        top: hot keys to list per purgatory (default: 20).

    Raises: PurgatoryError: there is no clean table.
    """
    made = _Report(spark, published(spark, clean), folders.qualified(spark, clean), folders.qualified(spark, out))
    within = inheritable_thread_target(spark)
    with ThreadPoolExecutor(3) as pool:  # while one query is planned, another runs
        parts = [
            pool.submit(within(made.by_day), first, last),
            pool.submit(within(made.by_key), first, last, top),
            pool.submit(within(made.by_snapshot), first, last),
        ]
        for part in parts:
            part.result()


def write_page(out: str, limits: Limits | None = None, advice: str | None = None) -> None:
    """Write the page for the tables in the qualified folder *out*, with the *advice* if there is any."""
    folders.write_bytes(f"{out}/report.html", page(out, limits=limits, advice=advice).encode())


@dataclass(frozen=True)
class _Report:
    """One report: its sources and its folder."""

    spark: SparkSession
    manifest: Manifest
    clean: str
    out: str

    def by_day(self, first: date | None, last: date | None) -> None:
        """Make minutes, days, changes, and seconds."""
        spans: dict[str, tuple[int, int]] = {}
        for _, day in self.manifest.between(None, None):
            widen(spans, day.spans)
        asked = [day for day, files in self.manifest.between(first, last) if files.spans]
        bounds = [each for _, day in self.manifest.between(first, last) for span in day.spans.values() for each in span]
        short = bool(bounds) and max(bounds) - min(bounds) < SHORT / timedelta(microseconds=1)
        plan = [_DayTask(day, day in asked, *files) for day, files in self._plan(first and first - _ONE_DAY, last)]
        job = partial(_report_day, out=self.out, spans=spans, by_second=short)
        days = pa.concat_tables([*spread(self.spark, job, plan), DAYS.empty_table()])
        days = days.sort_by([(name, "ascending") for name in ("date", "purgatory", "kind")])
        changed = changes(days)
        self._save("days", _between(days, asked))
        self._save("changes", _between(changed, asked))
        self._keep_only("minutes", [f"date={day}.parquet" for day in asked])
        self._keep_only("seconds", [f"date={day}.parquet" for day in asked if short])

    def by_key(self, first: date | None, last: date | None, top: int) -> None:
        """Make hot_keys."""
        days = self.manifest.between(first, last)
        sums = [each for _, day in days for each in day.files.get("keys", [])]
        shares = max(1, sum(rows for _, rows in sums) // _KEYS_PER_TASK)
        job = partial(top_keys, [f"{self.clean}/{path}" for path, _ in sums], top=top, shares=shares)
        found = merged(spread(self.spark, job, range(shares)), top) if sums else []
        wanted = [(key["purgatory"], key["key_hash"]) for key in found]
        waiting = [((day - EPOCH).days, self._waiting_on(day, OPERATIONS.name)) for day, files in days if files.spans]
        self._save("hot_keys", hot_keys(found, spread(self.spark, partial(fan_out_of_day, wanted=wanted), waiting)))

    def by_snapshot(self, first: date | None, last: date | None) -> None:
        """Make work, lost, and settings, from sums that are small for a journal of any size."""
        parts: dict[str, list[pa.Table]] = {"work": [], "edges": []}
        for name, tables in parts.items():
            for path in self.manifest.files(self.clean, name, first and first - _ONE_DAY, last):
                system, place = folders.arrow_place(path)
                tables.append(pq.ParquetFile(place, filesystem=system).read())
        grown = work(parts["work"], parts["edges"])
        begin = ((first or EPOCH) - EPOCH) // timedelta(minutes=1)
        grown = grown.filter(pa.array(grown.column("minute").to_numpy() >= begin))
        self._save("work", done(grown))
        self._save("lost", pa.concat_tables([_dropped(dropped(grown)), self._quarantined(first, last)]))
        self._save("settings", settings(parts["edges"]))

    def _waiting_on(self, day: date, what: str) -> list[str]:
        """The files of operations that were waiting on a *day*: they ended on it, or later."""
        until = (day - EPOCH + _ONE_DAY) // timedelta(microseconds=1)
        days = [later for _, later in self.manifest.between(day, None)]
        days = [later for later in days if later.since_us is not None and later.since_us < until]
        return [f"{self.clean}/{path}" for later in days for path, _ in later.files.get(what, [])]

    def _plan(self, first: date | None, last: date | None) -> Iterator[tuple[date, tuple[list[str], list[str]]]]:
        """The days with operations, and the files with their sums."""
        for day, files in self.manifest.between(first, last):
            if files.spans:
                activity = [f"{self.clean}/{path}" for path, _ in files.files.get("activity", [])]
                yield day, (activity, self._waiting_on(day, "seconds"))

    def _quarantined(self, first: date | None, last: date | None) -> pa.Table:
        rows = []
        for name, tables in sorted(self.manifest.file_days.items()):
            day = None if name == NOWHERE else date.fromisoformat(name)
            if day and ((first and day < first) or (last and day > last)):
                continue
            for file_day in tables.values():
                counts = dict(file_day.quarantined)
                if file_day.torn:
                    counts["torn files"] = max(sum(rows for _, _, rows in file_day.torn), len(file_day.torn))
                if file_day.unreadable:
                    counts["unreadable files"] = len(file_day.unreadable)
                rows += [{"date": day, "what": what, "rows": count} for what, count in sorted(counts.items())]
        return pa.Table.from_pylist(rows, LOST)

    def _save(self, name: str, table: pa.Table) -> None:
        """Replace the table *name*. Its size does not grow with the number of operations."""
        folders.write_table(f"{self.out}/{name}/{name}.parquet", table)

    def _keep_only(self, name: str, files: list[str]) -> None:
        """Remove the files of an earlier report for days that are not asked for now."""
        for file in folders.names(self.spark, f"{self.out}/{name}"):
            if file not in files:
                folders.remove(self.spark, f"{self.out}/{name}/{file}")


@dataclass(frozen=True)
class _DayTask:
    """One task: a day, whether it was asked for, and its sums."""

    day: date
    asked: bool
    activity: list[str]
    seconds: list[str]


def _report_day(task: _DayTask, out: str, spans: Spans, by_second: bool) -> pa.Table:
    """DAYS of one day. Writes its minutes if it is asked for."""
    activity, seconds = _by_purgatory(task.activity), _by_purgatory(task.seconds)
    nothing = [next(iter(each.values())).slice(0, 0) for each in (activity, seconds)]
    minutes, by_seconds, days = [], [], []
    for name in sorted(activity.keys() | seconds.keys()):
        number = (task.day - EPOCH).days
        sums = DaySums(number, activity.get(name, nothing[0]), seconds.get(name, nothing[1]))
        minutes.append(sums.minutes(spans))
        days.append(sums.days(spans, minutes[-1]))
        by_seconds += [sums.seconds()] if by_second else []
    if task.asked:
        folders.write_table(f"{out}/minutes/date={task.day}.parquet", pa.concat_tables(minutes))
    if task.asked and by_second:
        folders.write_table(f"{out}/seconds/date={task.day}.parquet", pa.concat_tables(by_seconds))
    return pa.concat_tables(days)


def _by_purgatory(paths: list[str]) -> dict[str, pa.Table]:
    """The rows of sums in the files, by purgatory."""
    found: list[pa.Table] = []
    for path in paths:
        system, place = folders.arrow_place(path)
        found.append(pq.read_table(place, filesystem=system, read_dictionary=["purgatory", "kind"], partitioning=None))  # pyright: ignore[reportArgumentType]
    table = pa.concat_tables(found).unify_dictionaries().combine_chunks()
    if not len(table):
        return {}
    column = table.column("purgatory").chunk(0)
    codes = column.indices.to_numpy()
    names = column.dictionary.to_pylist()
    return {names[code]: table.filter(pa.array(codes == code)) for code in np.unique(codes).tolist()}


def _between(table: pa.Table, days: list[date]) -> pa.Table:
    return table.filter(pc.is_in(table.column("date"), value_set=pa.array(days, pa.date32())))


def _dropped(minutes: pa.Table) -> pa.Table:
    at = minutes.column("minute").cast(INSTANT)
    what = pa.array(["dropped"] * len(minutes), pa.string())
    return pa.table([at.cast(pa.date32()), at, what, minutes.column("rows").cast(pa.int64())], schema=LOST)
