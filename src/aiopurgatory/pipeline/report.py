"""Clean table -> the fleet's activity: tables, and one page for people.

Per purgatory, kind and minute: operations by outcome, time waited, lateness, and the number waiting. Also: the hottest
keys, the work of the purgatories, lost rows, and changes since the day before, the largest first.

  CLEAN                            ->  OUT/minutes/date=....parquet
                                       OUT/{days,changes,hot_keys,work,lost,settings,seconds}/*.parquet
                                       OUT/report.html, a single file that loads nothing else

It adds up the sums written by ingest. Percentiles are within 2 %. A sampled row counts as all operations it
stands for. Each file is replaced atomically, so no reader sees half of one. Days whose sums have not changed since the
last report into OUT are kept. --as-of makes the report of an earlier version of the clean table, while ingest keeps it.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from .cleaning.versions import NOWHERE, Day, Manifest, published
from .minutes.changes import changes
from .minutes.columns import rows_by
from .minutes.hot_keys import hot_keys, shares_of, top_keys
from .minutes.measures import DAYS, KEYS, DaySums, Spans
from .minutes.sums import widen
from .minutes.units import DAY, EPOCH
from .minutes.work import LOST, done, dropped, settings, work
from .page.page import page
from .page.promises import Limits
from .page.wording import Markup
from .spark import folders
from .spark.session import stage_session
from .spark.tasks import Spark, spread
from .workload.model import expected_shares, read_model

TOP: Final = 20
#: A shorter range is reported by the second, too.
SHORT: Final = timedelta(hours=1)
_ONE_DAY: Final = timedelta(days=1)
#: Rows of sums, and days, for one task.
_ROWS_PER_TASK: Final = 200_000
_DAYS_PER_TASK: Final = 8
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
    about = "report what was published by then, as 2026-11-21 or 2026-11-21T18:00, in UTC (default: the newest)"
    parser.add_argument("--as-of", type=datetime.fromisoformat, metavar="DATE", help=about)
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
        report(spark, args.clean, args.out, first=args.first_day, last=args.last_day, as_of=args.as_of)
    write_page(args.out, limits)
    print(f"{args.out}/report.html")


def report(
    spark: Spark,
    clean: str,
    out: str,
    *,
    first: date | None = None,
    last: date | None = None,
    top: int = TOP,
    as_of: datetime | None = None,
) -> None:
    """Write the tables of the report to *out*, from the tables in *clean*.

    Args:
        first, last: the first and last day of the report (default: None, no limit).
        top: hot keys to list per purgatory (default: 20).
        as_of: use the version that was the newest then; a time without zone is in UTC (default: now).

    Raises: PurgatoryError: there is no clean table, none of that time is kept, or the days are in the wrong order.
    """
    if first and last and first > last:
        raise PurgatoryError(f"first must not be after last, got {first} and {last}")
    if as_of and as_of.tzinfo is None:
        as_of = as_of.replace(tzinfo=UTC)
    made = _Report(spark, published(clean, as_of), folders.absolute(clean), folders.absolute(out), first, last)
    made.by_day()
    made.by_key(top)
    made.by_snapshot()


def write_page(out: str, limits: Limits | None = None, advice: tuple[Markup, Markup] | None = None) -> None:
    """Write the page for the tables in the folder *out*. Arguments as in page()."""
    folders.write_bytes(f"{out}/report.html", page(out, limits=limits, advice=advice).encode())


@dataclass(frozen=True)
class _Report:
    """One report: its sources, its folder, and its days."""

    spark: Spark
    manifest: Manifest
    clean: str
    out: str
    first: date | None
    last: date | None

    def by_day(self) -> None:
        """Make minutes, days, changes, and seconds."""
        spans: dict[str, tuple[int, int]] = {}
        for _, day in self.manifest.between(None, None):
            widen(spans, day.spans)
        asked = [day for day, files in self.manifest.between(self.first, self.last) if files.spans]
        bounds = [each for _, day in self._days() for span in day.spans.values() for each in span]
        short = bool(bounds) and max(bounds) - min(bounds) < SHORT / timedelta(microseconds=1)
        plan = list(self._plan(asked, short, spans))
        there = Path(f"{self.out}/days/days.parquet").exists()
        known = _known(f"{self.out}/known.json") if there else {}
        changed = [task for task in plan if known.get(str(task.day)) != task.digest or not self._has(task)]
        job = partial(_report_days, out=self.out, by_second=short)
        found = [each for group in spread(self.spark, job, _grouped(changed)) for each in group]
        kept = [task.day for task in plan if task not in changed]
        old = _between(pq.ParquetFile(f"{self.out}/days/days.parquet").read(), kept) if kept else DAYS.empty_table()
        days = pa.concat_tables([*found, old.cast(DAYS)]).sort_by(
            [(name, "ascending") for name in ("date", "purgatory", "kind")]
        )
        # Without digests, a killed report is made again.
        folders.remove(f"{self.out}/known.json")
        # The day before the first is needed to compare, but is no part of the report.
        self._save("changes", _between(changes(days), asked))
        self._save("days", _between(days, asked))
        digests = {str(task.day): task.digest for task in plan if task.asked}
        folders.write_bytes(f"{self.out}/known.json", json.dumps(digests).encode())
        self._keep_only("minutes", [f"date={day}.parquet" for day in asked])
        self._keep_only("seconds", [f"date={day}.parquet" for day in asked if short])

    def by_key(self, top: int) -> None:
        """Make hot_keys."""
        sums = [(f"{self.clean}/{path}", rows) for _, day in self._days() for path, rows in day.files.get("keys", [])]
        shares = shares_of(sums)
        job = partial(top_keys, [path for path, _ in sums], top=top, shares=shares)
        self._save("hot_keys", hot_keys(spread(self.spark, job, range(shares)) if sums else [], top))

    def by_snapshot(self) -> None:
        """Make work, lost, and settings, from sums that are small for a journal of any size."""
        first = self.first and self.first - _ONE_DAY
        parts = {
            name: [pq.ParquetFile(path).read() for path in self.manifest.files(self.clean, name, first, self.last)]
            for name in ("work", "edges")
        }
        grown = work(parts["work"], parts["edges"])
        begin = ((self.first or EPOCH) - EPOCH) // timedelta(minutes=1)
        grown = grown.filter(pa.array(grown.column("minute").to_numpy() >= begin))
        self._save("work", done(grown))
        self._save("lost", pa.concat_tables([dropped(grown), self._quarantined()]))
        self._save("settings", settings(parts["edges"]))

    def _days(self) -> list[tuple[date, Day]]:
        return self.manifest.between(self.first, self.last)

    def _plan(self, asked: list[date], short: bool, spans: Spans) -> Iterator[_DayTask]:
        """Yield the days with operations, and the day before the first, to compare."""
        for day, files in self.manifest.between(self.first and self.first - _ONE_DAY, self.last):
            if not files.spans:
                continue
            begin = (day - EPOCH).days * DAY
            own = {name: (max(low, begin), min(high, begin + DAY)) for name, (low, high) in spans.items()}
            own = {name: span for name, span in own.items() if span[0] <= span[1]}
            activity = [f"{self.clean}/{path}" for path, _ in files.files.get("activity", [])]
            rows = sum(rows for _, rows in files.files.get("activity", []))
            waiting = self._waiting_on(day)
            made_from = repr((aiopurgatory.__version__, activity, waiting, sorted(own.items()), short))
            digest = hashlib.sha256(made_from.encode()).hexdigest()[:20]
            yield _DayTask(day, day in asked, activity, waiting, own, rows, digest)

    def _has(self, task: _DayTask) -> bool:
        return not task.asked or Path(f"{self.out}/minutes/date={task.day}.parquet").exists()

    def _waiting_on(self, day: date) -> list[str]:
        """The files with the seconds of operations that were waiting on a *day*: they ended on it, or later."""
        until = (day - EPOCH + _ONE_DAY) // timedelta(microseconds=1)
        days = [later for _, later in self.manifest.between(day, None)]
        days = [later for later in days if later.since_us is not None and later.since_us < until]
        return [f"{self.clean}/{path}" for later in days for path, _ in later.files.get("seconds", [])]

    def _quarantined(self) -> pa.Table:
        rows = []
        for name, tables in sorted(self.manifest.file_days.items()):
            day = None if name == NOWHERE else date.fromisoformat(name)
            if day and ((self.first and day < self.first) or (self.last and day > self.last)):
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
        for file in folders.names(f"{self.out}/{name}"):
            if file not in files:
                folders.remove(f"{self.out}/{name}/{file}")


def _known(path: str) -> dict[str, str]:
    """Return digests of what the days of the last report were made from."""
    with suppress(OSError, ValueError):
        return dict(json.loads(Path(path).read_text()))
    return {}


@dataclass(frozen=True)
class _DayTask:
    """A day, whether it was asked for, its sums and the coverage of its purgatories, and a digest of all this."""

    day: date
    asked: bool
    activity: list[str]
    seconds: list[str]
    spans: Spans
    rows: int
    digest: str


def _grouped(days: list[_DayTask]) -> list[list[_DayTask]]:
    """Group days into tasks."""
    groups: list[list[_DayTask]] = []
    rows = _ROWS_PER_TASK
    for day in days:
        if rows >= _ROWS_PER_TASK or len(groups[-1]) >= _DAYS_PER_TASK:
            groups.append([])
            rows = 0
        groups[-1].append(day)
        rows += day.rows
    return groups


def _report_days(tasks: list[_DayTask], out: str, by_second: bool) -> list[pa.Table]:
    return [_report_day(task, out, by_second) for task in tasks]


def _report_day(task: _DayTask, out: str, by_second: bool) -> pa.Table:
    """DAYS of one day. Writes its minutes if it is asked for."""
    activity, seconds = _by_purgatory(task.activity), _by_purgatory(task.seconds)
    nothing = [next(iter(each.values())).slice(0, 0) for each in (activity, seconds)]
    minutes, by_seconds, days = [], [], []
    for name in sorted(activity.keys() | seconds.keys()):
        number = (task.day - EPOCH).days
        sums = DaySums(number, activity.get(name, nothing[0]), seconds.get(name, nothing[1]))
        minutes.append(sums.minutes(task.spans))
        days.append(sums.days(task.spans, minutes[-1]))
        by_seconds += [sums.seconds()] if by_second else []
    if task.asked:
        folders.write_table(f"{out}/minutes/date={task.day}.parquet", pa.concat_tables(minutes))
    if task.asked and by_second:
        folders.write_table(f"{out}/seconds/date={task.day}.parquet", pa.concat_tables(by_seconds))
    return pa.concat_tables(days)


def _by_purgatory(paths: list[str]) -> dict[str, pa.Table]:
    """The rows of sums in the files, by purgatory."""
    return rows_by(pa.concat_tables([pq.ParquetFile(path, read_dictionary=KEYS).read() for path in paths]), "purgatory")


def _between(table: pa.Table, days: list[date]) -> pa.Table:
    return table.filter(pc.is_in(table.column("date"), value_set=pa.array(days, pa.date32())))
