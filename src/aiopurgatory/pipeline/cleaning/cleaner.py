"""The work of a task of ingest: read each file of a journal once, and write clean rows, bad rows and sums.

A task writes under unique names and returns the names of its files. Files of a task that died are therefore never used,
and are removed with their folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..minutes.columns import Array, Columns
from ..minutes.sums import Sums
from ..minutes.units import DAY, EPOCH
from ..minutes.work import work_sums
from .duplicates import Range, ranges
from .files import TornFileError, one_line, read
from .journal_tables import OPERATIONS, TABLES, Table
from .judging import ended_us, judge

_ROWS_PER_GROUP: Final = 1 << 20
_ROWS_TOGETHER: Final = 1 << 16
# Their values hardly repeat, so a dictionary does not pay.
_DIFFERENCES: Final = ("sequence", "watched_at", "waited_us", "lateness_us")


@dataclass(frozen=True)
class Job:
    """The settings of all tasks of one table."""

    table: str
    #: Where they write.
    folder: str
    #: None: all.
    days: frozenset[date] | None = None

    def wants(self, day: date) -> bool:
        return self.days is None or day in self.days


@dataclass
class FileReport:
    """The result of one file."""

    path: str
    day: str
    rows_in: int = 0
    #: The reason if it is torn; rows_in is then the number in its footer.
    torn: str = ""
    #: The error if it could not be read now.
    unreadable: str = ""
    duplicates: int = 0
    #: Good rows of days that were not asked for.
    other_days: int = 0
    #: Good rows by day.
    days: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    ranges: list[Range] = field(default_factory=list)


@dataclass
class Written:
    """One file that a task has written."""

    day: str
    what: str
    path: str
    rows: int


@dataclass
class TaskReport:
    """The results of one task."""

    files: list[FileReport] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    #: By day and purgatory, the first and the last end. By day, when its first operation was watched.
    spans: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _FileRows:
    """The rows of one file."""

    report: FileReport
    #: The day of the file's folder.
    day: date
    rows: pa.Table
    #: The numbers of the rows to drop, ascending.
    copies: Array
    #: The whole file, if it may be copied.
    content: bytes | None


#: A file, the day of its folder, and the numbers of its rows that are to be dropped as copies.
Given = tuple[str, date, list[int]]


def clean(files: Sequence[Given], job: Job) -> TaskReport:
    """Clean a group of files."""
    task = _Task(job)
    for path, day, copies in files:
        task.take(path, day, np.array(sorted(copies), np.int64))
    return task.finish()


class _Task:
    """Cleans the files of one group, one after the other."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._table: Table = TABLES[job.table]
        self._report = TaskReport()
        self._name = uuid4().hex
        self._outputs: dict[tuple[str, str], _Output] = {}
        self._sums: dict[str, Sums] = {}
        self._snapshots: dict[str, list[pa.Table]] = {}
        #: Rows that are not judged yet, all of files of one day.
        self._parts: list[_FileRows] = []
        self._gathered = 0

    def take(self, path: str, day: date, copies: Array) -> None:
        report = FileReport(path, day.isoformat())
        self._report.files.append(report)
        try:
            rows = read(path, self._table)
        except TornFileError as error:
            report.torn, report.rows_in = error.reason, error.rows
        except OSError as error:
            report.unreadable = one_line(error)
        else:
            report.rows_in = len(rows.table)
            self._gather(_FileRows(report, day, rows.table, copies, rows.content))

    def finish(self) -> TaskReport:
        self._clean()
        for day, snapshots in self._snapshots.items():
            for name, table in work_sums(pa.concat_tables(snapshots).unify_dictionaries()).items():
                self._output(day, name, table.schema).write(table)
        for day, sums in self._sums.items():
            for name, table in sums.tables().items():
                self._output(day, name, table.schema).write(table)
            self._report.spans[day], self._report.since[day] = sums.spans, sums.since_us
        for output in self._outputs.values():
            self._report.written.append(output.close())
        return self._report

    def _gather(self, part: _FileRows) -> None:
        if self._parts and self._parts[0].day != part.day:
            self._clean()
        self._parts.append(part)
        self._gathered += len(part.rows)
        if self._gathered >= _ROWS_TOGETHER:
            self._clean()

    def _clean(self) -> None:
        """Judge the gathered rows, and add them up. Rows of many small files together cost less."""
        parts, self._parts, self._gathered = self._parts, [], 0
        if not parts:
            return
        begins = np.cumsum([0, *(len(part.rows) for part in parts)])
        file = np.repeat(np.arange(len(parts)), np.diff(begins))
        rows = pa.concat_tables([part.rows for part in parts])
        columns = Columns(rows.unify_dictionaries().combine_chunks() if len(parts) > 1 else rows)
        broken, rules = judge(columns, self._table, parts[0].day)
        for number in np.unique(file[broken > 0]).tolist():
            self._quarantine(columns, np.where(file == number, broken, 0), rules, parts[number])
        kept = broken == 0
        copies = np.concatenate([begin + part.copies for begin, part in zip(begins[:-1], parts, strict=True)])
        copies = copies[kept[copies]]
        kept[copies] = False
        good, file = columns.where(kept), file[kept]
        for part, duplicates in zip(parts, np.diff(np.searchsorted(copies, begins)).tolist(), strict=True):
            part.report.duplicates += duplicates
        if len(good):
            for number, found in ranges(good, self._table, file):
                parts[number].report.ranges.append(found)
            whole = parts[0].content if len(parts) == 1 and len(good) == len(rows) else None
            self._by_day(good, file, [part.report for part in parts], whole)

    def _by_day(self, good: Columns, file: Array, reports: list[FileReport], whole: bytes | None) -> None:
        """Write and add up good rows. If they are a *whole* file, and of one day, it is copied."""
        numbers = ended_us(good, self._table) // DAY
        some = range(int(numbers[0]), int(numbers[0]) + 1) if (numbers == numbers[0]).all() else np.unique(numbers)
        for number in map(int, some):
            name = (EPOCH + timedelta(days=number)).isoformat()
            rows = good.where(numbers == number)
            is_wanted = self._job.wants(date.fromisoformat(name))
            counts = np.bincount(file[numbers == number], minlength=len(reports)).tolist()
            for report, count in zip(reports, counts, strict=True):
                if count:
                    report.days[name] += count
                    report.other_days += 0 if is_wanted else count
            if not is_wanted:
                continue
            if whole and rows is good:
                self._copy(name, whole, len(good))
            else:
                self._output(name, self._table.name, rows.rows.schema).write(rows.rows)
            if self._table is OPERATIONS:
                self._sums.setdefault(name, Sums()).add(rows)
            else:
                self._snapshots.setdefault(name, []).append(rows.rows)

    def _quarantine(self, columns: Columns, broken: Array, rules: list[str], part: _FileRows) -> None:
        report, rows = part.report, columns.where(broken > 0).rows
        reasons = [rules[number - 1] for number in broken[broken > 0].tolist()]
        report.quarantined.update(reasons)
        table = rows.append_column("reason", pa.array(reasons, pa.string()))
        table = table.append_column("file", pa.array([report.path] * len(reasons), pa.string()))
        self._output(part.day.isoformat(), f"quarantine/{self._table.name}", table.schema).write(table)

    def _copy(self, day: str, content: bytes, rows: int) -> None:
        path = Path(f"{self._job.folder}/{self._table.name}/date={day}/{uuid4().hex}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self._report.written.append(Written(day, self._table.name, str(path), rows))

    def _output(self, day: str, what: str, schema: pa.Schema) -> _Output:
        key = day, what
        if key not in self._outputs:
            path = f"{self._job.folder}/{what}/date={day}/{self._name}.parquet"
            self._outputs[key] = _Output(day, what, path, schema)
        return self._outputs[key]


class _Output:
    """A file that is being written, a few large groups of rows at a time."""

    def __init__(self, day: str, what: str, path: str, schema: pa.Schema) -> None:
        self._written = Written(day, what, path, 0)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        differences = [name for name in _DIFFERENCES if name in schema.names and what in TABLES]
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="lz4",
            store_schema=False,
            use_dictionary=[name for name in schema.names if name not in differences],  # pyright: ignore[reportArgumentType]
            column_encoding=dict.fromkeys(differences, "DELTA_BINARY_PACKED") or None,
        )
        self._waiting: list[pa.Table] = []
        self._size = 0

    def write(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._size += len(rows)
        self._written.rows += len(rows)
        if self._size >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> Written:
        self._flush()
        self._writer.close()
        return self._written

    def _flush(self) -> None:
        if self._waiting:
            # Names stay the dictionaries that they are.
            rows = pa.concat_tables(self._waiting).unify_dictionaries()
            self._writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
        self._waiting, self._size = [], 0
