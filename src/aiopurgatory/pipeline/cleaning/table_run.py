"""One table of one run of ingest: from the files of the journal to the days of a manifest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError

from ..minutes import sums, work
from ..spark.tasks import spread
from .cleaner import FileReport, Job, Report, Written, clean
from .duplicates import copies, suspects
from .files import JournalFile, listed
from .journal_tables import OPERATIONS
from .versions import NOWHERE, Day, FileDay, LostRowsError, Manifest

_ONE_DAY: Final = timedelta(days=1)
# A task takes files until they have so many bytes: what it loses when it dies is soon done again.
_BYTES_PER_TASK: Final = 64 << 20
_LEAST_PER_TASK: Final = 4 << 20
_STRAY: Final = "lies in no folder of a day and an hour"


class TornJournalError(PurgatoryError):
    """So many files are torn that something else must be wrong."""


@dataclass
class Counts:
    """What became of the rows of one table. ``rows_in`` is what the footers of the files say."""

    files: int = 0
    rows_in: int = 0
    rows_out: int = 0
    duplicates: int = 0
    #: Rows near the first and the last day that are of other days, and those of days that stay as they were.
    other_days: int = 0
    #: Rows by the reason why they are quarantined.
    quarantined: dict[str, int] = field(default_factory=dict)
    torn_files: int = 0
    rows_of_torn_files: int = 0
    #: Files and folders that cannot be read now.
    unreadable: int = 0
    #: Days that stay as they were, though some of their files are there.
    kept_days: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raises: LostRowsError: the counts do not add up."""
        out = self.rows_out + self.duplicates + self.other_days + sum(self.quarantined.values())
        if self.rows_in != out + self.rows_of_torn_files:
            raise LostRowsError(f"rows must come out as they went in, got {self}")


class TableRun:
    """Cleans the files below *path* as *job* says, and puts what comes of them in place of what *base* has."""

    def __init__(self, spark: SparkSession, path: str, out: str, job: Job, base: Manifest) -> None:
        self._spark = spark
        self._out = out
        self._job = job
        self._base = base
        files, self._folders = listed(path)
        self._stray = [file for file in files if file.day is None]
        self._files = [file for file in files if file.day is not None and self._is_near(file.day)]
        self._counts = Counts(files=len(self._files) + len(self._stray), unreadable=len(self._folders))

    def into(self, manifest: Manifest, *, remake: bool, max_torn: float) -> Counts:
        """Clean, and put the days into *manifest*; returns the counts.

        Raises: TornJournalError: more files are torn than the share *max_torn*; LostRowsError.
        """
        reports = self._cleaned() if self._files else []
        seen = [file for report in reports for file in report.files]
        self._refuse_torn([file for file in seen if file.torn], max_torn * len(seen))
        lost = set() if remake else self._days_with_fewer_files()
        kept = self._kept(lost, seen)
        self._take_days(manifest, reports, kept)
        self._take_file_days(manifest, reports, seen, lost)
        for file in seen:
            self._count(file)
        self._counts.torn_files += len(self._stray)
        self._counts.check()
        return self._counts

    # before

    def _is_near(self, day: date) -> bool:
        """The file in which a day ends has rows of the next one, and the reverse."""
        return any(self._job.wants(day + number * _ONE_DAY) for number in (-1, 0, 1))

    def _days_with_fewer_files(self) -> set[str]:
        """The days whose folder had more files when it was taken last: those that are missing may have had its rows."""
        now = Counter(file.day for file in self._files)
        before = {date.fromisoformat(day): of for day, of in self._base.file_days.items() if day != NOWHERE}
        name = self._job.table
        near = {day: of[name].files for day, of in before.items() if name in of and self._is_near(day)}
        return {str(day) for day, files in near.items() if now[day] < files}

    def _kept(self, lost: set[str], seen: list[FileReport]) -> set[str]:
        """The days that stay as they were: those that were there, and some of whose files cannot be had now."""
        days = lost | {file.day for file in seen if file.unreadable}
        for folder in self._folders:
            found = re.search(r"/date=(\d{4}-\d{2}-\d{2})(/|$)", folder)
            days |= {found[1]} if found else set(self._base.days)
        return {day for day in _around(days) if self._job.table in self._base.days.get(day, Day()).files}

    def _refuse_torn(self, torn: list[FileReport], most: float) -> None:
        if len(torn) > most:
            raise TornJournalError(
                f"{len(torn):,} of {self._counts.files:,} files are torn, more than max_torn allows; the first is "
                f"{torn[0].path}: {torn[0].torn}"
            )

    # cleaning

    def _cleaned(self) -> list[Report]:
        groups = [[(file.path, file.day or date.min, list[int]()) for file in group] for group in self._groups()]
        reports = spread(self._spark, partial(clean, job=self._job), groups)
        twice = suspects((file.path, file.ranges) for report in reports for file in report.files)
        if not twice:
            return reports
        # What the tasks with such files have written is left aside: they are done again without the copies.
        again = [number for number, group in enumerate(groups) if any(path in twice for path, _, _ in group)]
        known = {path: (path, day, rows) for number in again for path, day, rows in groups[number]}
        among = self._spark.createDataFrame([known[path][:2] for path in sorted(twice)], "path STRING, file_day DATE")
        found = copies(among, self._job.table).toArrow()
        for path, row in zip(found.column("path").to_pylist(), found.column("row").to_pylist(), strict=True):
            known[path][2].append(row)
        done = spread(self._spark, partial(clean, job=self._job), [groups[number] for number in again])
        return [report for number, report in enumerate(reports) if number not in again] + done

    def _groups(self) -> list[list[JournalFile]]:
        """Files of the same hours together, so that few tasks have sums of the same minute."""
        cores = self._spark.sparkContext.defaultParallelism
        size = sum(file.size for file in self._files)
        most = max(min(size // cores + 1, _BYTES_PER_TASK), _LEAST_PER_TASK)
        groups: list[list[JournalFile]] = []
        room = 0
        for file in self._files:
            if room <= 0:
                groups.append([])
                room = most
            groups[-1].append(file)
            room -= file.size
        return groups

    # afterwards

    def _take_days(self, manifest: Manifest, reports: list[Report], kept: set[str]) -> None:
        made = {str(file.day): Day() for file in self._files if file.day and self._job.wants(file.day)}
        for report in reports:
            for written in report.written:
                if written.what in _of(self._job.table):
                    day = made.setdefault(written.day, Day())
                    day.files.setdefault(written.what, []).append((self._below(written), written.rows))
            for name, spans in report.spans.items():
                made[name].add(spans, report.since[name])
        for name, day in made.items():
            rows = sum(rows for _, rows in day.files.get(self._job.table, []))
            if name in kept:
                self._counts.kept_days += [name]
                self._counts.other_days += rows
            else:
                self._counts.rows_out += rows
                manifest.put(name, self._joined(manifest.days.get(name, Day()), day))

    def _joined(self, old: Day, new: Day) -> Day:
        """The day *old*, with what it has of this table replaced by *new*."""
        others = {what: files for what, files in old.files.items() if what not in _of(self._job.table)}
        same = old if self._job.table != OPERATIONS.name else new
        return Day(others | new.files, same.spans, same.since_us)

    def _take_file_days(
        self, manifest: Manifest, reports: list[Report], seen: list[FileReport], lost: set[str]
    ) -> None:
        made = {NOWHERE: FileDay(len(self._stray), torn=[(file.path, _STRAY, 0) for file in self._stray])}
        for file in seen:
            made.setdefault(file.day, FileDay()).add(
                file.path,
                file.rows_in,
                torn=file.torn,
                unreadable=file.unreadable,
                quarantined=file.quarantined,
            )
        for report in reports:
            for written in report.written:
                if written.what not in _of(self._job.table):
                    made[written.day].quarantine.append(self._below(written))
        for name, of in made.items():
            if name not in lost:
                manifest.file_days[name] = manifest.file_days.get(name, {}) | {self._job.table: of}

    def _below(self, written: Written) -> str:
        return written.path[len(self._out) + 1 :]

    def _count(self, file: FileReport) -> None:
        counts = self._counts
        counts.rows_in += file.rows_in
        counts.duplicates += file.duplicates
        counts.other_days += file.other_days
        counts.unreadable += bool(file.unreadable)
        if file.torn:
            counts.torn_files += 1
            counts.rows_of_torn_files += file.rows_in
        for reason, rows in file.quarantined.items():
            counts.quarantined[reason] = counts.quarantined.get(reason, 0) + rows


def _of(table: str) -> tuple[str, ...]:
    """What a table has of each day."""
    return (table, *(sums.NAMES if table == OPERATIONS.name else work.NAMES))


def _around(days: Iterable[str]) -> set[str]:
    """*days*, and the days before and after each."""
    return {str(date.fromisoformat(day) + number * _ONE_DAY) for day in days for number in (-1, 0, 1)}
