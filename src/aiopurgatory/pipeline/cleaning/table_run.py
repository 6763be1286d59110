"""Cleans one table in one run of ingest: from the files of the journal to the days of a manifest."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from typing import Final

import pyarrow as pa

from aiopurgatory.errors import PurgatoryError

from ..minutes import sums, work
from ..spark.tasks import Spark, spread
from .cleaner import FileReport, Job, TaskReport, Written, clean
from .duplicates import copies, suspects
from .files import JournalFile, day_of, list_files
from .journal_tables import OPERATIONS
from .versions import NOWHERE, Day, FileDay, Known, LostRowsError, Manifest

_ONE_DAY: Final = timedelta(days=1)
# Bytes of files per task. A task that dies loses little work.
_BYTES_PER_TASK: Final = 64 << 20
_LEAST_PER_TASK: Final = 4 << 20
# Up to so many bytes take as long in this process, 3 s, as Spark's start.
_AT_HOME: Final = 16 << 20
_STRAY: Final = "is in no date=.../hour=... folder"


class TornJournalError(PurgatoryError):
    """More files are torn than max_torn allows: something else must be wrong."""


@dataclass
class Counts:
    """The counts of one table's rows. ``rows_in`` is the number in the files' footers."""

    files: int = 0
    rows_in: int = 0
    rows_out: int = 0
    duplicates: int = 0
    #: Rows that belong to days that keep their rows.
    other_days: int = 0
    #: Quarantined rows by reason.
    quarantined: Counter[str] = field(default_factory=Counter)
    torn_files: int = 0
    rows_of_torn_files: int = 0
    #: Files and folders that cannot be read now.
    unreadable: int = 0
    #: Days that keep their rows, though some of their files exist.
    kept_days: list[str] = field(default_factory=list)
    #: Rows of such days in new files.
    left_out: int = 0

    def check(self) -> None:
        """Raises: LostRowsError: the counts do not add up."""
        out = self.rows_out + self.duplicates + self.other_days + sum(self.quarantined.values())
        if self.rows_in != out + self.rows_of_torn_files:
            raise LostRowsError(f"rows in must equal rows out, got {self}")


class TableRun:
    """Cleans the files below *path* as *job* says. The results replace those in *base*."""

    def __init__(
        self, spark: Spark, path: str, out: str, job: Job, base: Manifest, *, incremental: bool = False
    ) -> None:
        """Args: incremental: rebuild only the days that new and changed files may have rows of."""
        self._spark = spark
        self._out = out
        self._base = base
        self._path = path
        self._table = job.table
        #: Files that may hold duplicates, of rows in other files or of their own.
        self._twice: set[str] = set()
        files, self._folders = list_files(path)
        self._all = len(files)
        changed = {file.day for file in files if file.day is not None and self._is_changed(file)}
        around = frozenset(each for day in changed for each in _around(day))
        self._job = replace(job, days=around) if incremental else job
        self._states = {file.path: file for file in files}
        self._stray = [file for file in files if file.day is None]
        self._files = [file for file in files if file.day is not None and self._is_near(file.day)]
        self._counts = Counts(files=len(self._files) + len(self._stray), unreadable=len(self._folders))

    def into(self, manifest: Manifest, *, remake: bool, max_torn: float) -> Counts:
        """Clean, and put the days into *manifest*; return the counts.

        Raises: TornJournalError: more files are torn than the share *max_torn*; LostRowsError.
        """
        reports = self._cleaned() if self._files else []
        seen = [file for report in reports for file in report.files]
        self._refuse_torn([file for file in seen if file.torn], max_torn)
        missing = {} if remake else self._missing()
        gone = [known for each in missing.values() for known in each]
        gone += [known for file in seen if file.unreadable and (known := self._known(file.path, file.day))]
        kept = self._days_to_keep(gone, seen)
        added = [report for report in reports if self._adds(report, gone)]
        self._take_days(manifest, reports, kept, added)
        left_out = [file for report in reports if report not in added for file in self._left_out(report, kept)]
        self._counts.left_out = sum(rows for file in left_out for day, rows in file.days.items() if day in kept)
        self._take_file_days(manifest, reports, [file for file in seen if file not in left_out], missing)
        for file in seen:
            self._count(file)
        self._counts.torn_files += len(self._stray)
        self._counts.check()
        return self._counts

    # before

    def _is_near(self, day: date) -> bool:
        """Whether a file of *day* may hold wanted rows; it may hold rows of the days before and after."""
        return any(map(self._job.wants, _around(day)))

    def _is_changed(self, file: JournalFile) -> bool:
        """Whether a file differs from the base, or could not be read for it."""
        known = self._known(file.path, str(file.day))
        state = known and (known["size"], known["changed"])
        return state != (file.size, file.changed) or file.path in dict(self._before(str(file.day)).unreadable)

    def _missing(self) -> dict[str, list[Known]]:
        """Return the known contents of deleted files, by folder day."""
        now = {self._name(file.path) for file in self._files}
        found: dict[str, list[Known]] = {}
        for name in self._base.file_days:
            day = day_of(name)
            gone = [known for file, known in self._before(name).files.items() if file not in now]
            if gone and day and self._is_near(day):
                found[name] = gone
        return found

    def _name(self, path: str) -> str:
        return path[len(self._path) + 1 :]

    def _known(self, path: str, day: str) -> Known | None:
        """Return the known contents of a file; None: it is new."""
        return self._before(day).files.get(self._name(path))

    def _before(self, day: str) -> FileDay:
        """Return the state of a day's files in the base."""
        return self._base.file_days.get(day, {}).get(self._table, FileDay())

    def _days_to_keep(self, gone: list[Known], seen: list[FileReport]) -> set[str]:
        """Return the days that keep their rows, because some of these cannot be read now."""
        days = {day for known in gone for day in known["days"]}
        for file in seen:
            if file.unreadable and self._known(file.path, file.day) is None:
                days |= set(map(str, _around(date.fromisoformat(file.day))))
        for folder in self._folders:
            found = re.search(r"/date=([^/]*)(/|$)", folder)
            day = day_of(found[1]) if found else None
            days |= set(map(str, _around(day))) if day else set(self._base.days)
        return {day for day in days if self._table in self._base.days.get(day, Day()).files}

    def _adds(self, report: TaskReport, gone: list[Known]) -> bool:
        """Whether a task had only new files with new rows. A renamed file is new, but its rows are not."""
        if any(file.path in self._twice or self._known(file.path, file.day) for file in report.files):
            return False
        before = [(who, first, last) for known in gone for who, first, last, _ in known["ranges"]]
        return not any(
            who == name and first <= high and low <= last
            for file in report.files
            for name, low, high, _ in file.ranges
            for who, first, last in before
        )

    def _left_out(self, report: TaskReport, kept: set[str]) -> list[FileReport]:
        """Return the new files with rows that may be in the table already, of days that keep their rows."""
        new = [file for file in report.files if self._known(file.path, file.day) is None]
        return [file for file in new if kept & file.days.keys()]

    def _refuse_torn(self, torn: list[FileReport], most: float) -> None:
        bad = [(file.path, file.torn) for file in torn] + [(file.path, _STRAY) for file in self._stray]
        if bad and len(bad) > most * self._all:
            raise TornJournalError(
                f"{len(bad):,} of {self._all:,} files are torn or stray, more than max_torn allows; the first "
                f"is {bad[0][0]}: {bad[0][1]}"
            )

    # cleaning

    def _cleaned(self) -> list[TaskReport]:
        groups = [[(file.path, file.day or date.min, list[int]()) for file in group] for group in self._groups()]
        spark = None if sum(file.size for file in self._files) <= _AT_HOME else self._spark
        cleaned = partial(spread, spark, partial(clean, job=self._job))
        reports: list[TaskReport] = cleaned(groups)
        self._twice = twice = suspects((file.path, file.ranges) for report in reports for file in report.files)
        if not twice:
            return reports
        # Tasks with such files are repeated without the duplicates; their first results are ignored.
        again = [number for number, group in enumerate(groups) if any(path in twice for path, _, _ in group)]
        known = {path: (path, day, rows) for number in again for path, day, rows in groups[number]}
        paths, days = zip(*(known[path][:2] for path in sorted(twice)), strict=True)
        found = copies(pa.table({"path": paths, "file_day": days}), self._table, spark)
        for path, row in zip(found.column("path").to_pylist(), found.column("row").to_pylist(), strict=True):
            known[path][2].append(row)
        done = cleaned([groups[number] for number in again])
        return [report for number, report in enumerate(reports) if number not in again] + done

    def _groups(self) -> list[list[JournalFile]]:
        """Group files of the same hours, so that few tasks have sums of the same minute."""
        size = sum(file.size for file in self._files)
        cores = os.cpu_count() or 1
        most = max(min(size // cores + 1, _BYTES_PER_TASK), _LEAST_PER_TASK)
        groups: list[list[JournalFile]] = []
        room = 0
        new = [self._known(file.path, str(file.day)) is None for file in self._files]
        was_new = False
        for is_new, file in sorted(zip(new, self._files, strict=True), key=lambda each: each[0]):
            # Snapshots of a day stay together: their counters are compared with those before.
            is_next_day = bool(groups) and groups[-1][-1].day != file.day
            is_full = room <= 0 if self._table == OPERATIONS.name else is_next_day
            if not groups or is_full or is_new != was_new:
                groups.append([])
                room = most
            was_new = is_new
            groups[-1].append(file)
            room -= file.size
        return groups

    # afterwards

    def _take_days(
        self, manifest: Manifest, reports: list[TaskReport], kept: set[str], added: list[TaskReport]
    ) -> None:
        """Put the days into *manifest*. Days in *kept* only get the rows in *added*."""
        every = {str(file.day) for file in self._files if file.day and self._job.wants(file.day)}
        made = self._days(reports)
        more = self._days(added)
        for name in sorted(every | made.keys()):
            day = made.get(name, Day())
            rows = day.rows(self._table)
            if name in kept:
                self._counts.kept_days += [name]
                day = more.get(name, Day())
                self._counts.other_days += rows - day.rows(self._table)
                rows = day.rows(self._table)
                day.join(self._base.days[name], _file_names(self._table))
            self._counts.rows_out += rows
            manifest.put(name, self._joined(manifest.days.get(name, Day()), day))

    def _days(self, reports: list[TaskReport]) -> dict[str, Day]:
        """Return the files that the tasks have written, by day."""
        made: dict[str, Day] = {}
        for report in reports:
            for written in report.written:
                if written.what in _file_names(self._table):
                    files = made.setdefault(written.day, Day()).files
                    files.setdefault(written.what, []).append((self._below(written), written.rows))
            for name, spans in report.spans.items():
                made[name].add(spans, report.since[name])
        return made

    def _joined(self, old: Day, new: Day) -> Day:
        """Return the day *old* with its files of this table replaced by those of *new*."""
        others = {what: files for what, files in old.files.items() if what not in _file_names(self._table)}
        same = old if self._table != OPERATIONS.name else new
        return Day(others | new.files, same.spans, same.since_us)

    def _take_file_days(
        self, manifest: Manifest, reports: list[TaskReport], seen: list[FileReport], missing: dict[str, list[Known]]
    ) -> None:
        made = {NOWHERE: FileDay(torn=[(file.path, _STRAY, 0) for file in self._stray])}
        for file in seen:
            day = made.setdefault(file.day, FileDay())
            known = self._known(file.path, file.day)
            if known and file.unreadable:
                day.files[self._name(file.path)] = known
            elif known or self._job.wants(date.fromisoformat(file.day)):  # else it stays new for the next run
                state = self._states[file.path]
                known = Known(size=state.size, changed=state.changed, days=list(file.days), ranges=file.ranges)
                day.files[self._name(file.path)] = known
            if file.torn:
                day.torn.append((file.path, file.torn, file.rows_in))
            if file.unreadable:
                day.unreadable.append((file.path, file.unreadable))
            day.quarantined.update(file.quarantined)
        for report in reports:
            for written in report.written:
                if written.what not in _file_names(self._table):
                    made.setdefault(written.day, FileDay()).quarantine.append(self._below(written))
        for name, day in made.items():
            if name in missing or day.unreadable:
                day.keep(self._before(name))
            manifest.file_days[name] = manifest.file_days.get(name, {}) | {self._table: day}

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
        counts.quarantined.update(file.quarantined)


def _file_names(table: str) -> tuple[str, ...]:
    """Return the names of the files that a table has for each day."""
    return (table, *(sums.NAMES if table == OPERATIONS.name else work.NAMES))


def _around(day: date) -> list[date]:
    """Return a day, and those before and after it."""
    return [day - _ONE_DAY, day, day + _ONE_DAY]
