"""Lists the files of a journal, and reads their rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

from ..minutes.units import EPOCH, LAST_YEAR
from ..spark.folders import absolute
from .journal_tables import OPERATIONS, Table

_FOLDER: Final = re.compile(r"/date=(\d{4}-\d{2}-\d{2})/hour=[^/]*/[^/]*$")


class TornFileError(Exception):
    """A file that is not a whole Parquet file of a journal. Reading it again does not help."""

    def __init__(self, reason: str, rows: int) -> None:
        super().__init__(reason, rows)
        self.reason = reason
        #: The number in its footer.
        self.rows = rows


@dataclass(frozen=True, slots=True)
class JournalFile:
    """One file as the driver finds it."""

    path: str
    size: int
    #: When it was written, in nanoseconds.
    changed: int

    @property
    def day(self) -> date | None:
        """The day of its folder; None: it is in no date=.../hour=... folder."""
        found = _FOLDER.search(self.path)
        return day_of(found[1]) if found else None


def day_of(text: str) -> date | None:
    """Return the day of an ISO date; None: it is no date, or not of 1970 to LAST_YEAR."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if EPOCH.year <= day.year <= LAST_YEAR else None


def require_journal(journal: str) -> None:
    """Raises: PurgatoryError: there is no journal."""
    if not os.path.isdir(f"{absolute(journal)}/{OPERATIONS.name}"):
        raise PurgatoryError(f"journal must be a folder with {OPERATIONS.name} in it, got {journal}")


def list_files(folder: str) -> tuple[list[JournalFile], dict[str, str]]:
    """Return the Parquet files below *folder* in order of their paths, and the unreadable folders with reasons."""
    found: list[JournalFile] = []
    unreadable: dict[str, str] = {}
    folders, seen = [folder], set[tuple[int, int]]()
    while folders:
        path = folders.pop()
        try:
            state = os.stat(path)
            if (state.st_dev, state.st_ino) in seen:  # a link to a folder above
                continue
            seen.add((state.st_dev, state.st_ino))
            for name, size, changed in _entries(path):
                if size is None:
                    folders.append(f"{path}/{name}")
                elif name.endswith(".parquet"):
                    found.append(JournalFile(f"{path}/{name}", size, changed))
        except OSError as error:
            unreadable[path] = one_line(error)
    return sorted(found, key=lambda file: file.path), unreadable


def _entries(folder: str) -> Iterator[tuple[str, int | None, int]]:
    """Yield names in a folder, sizes (None for folders) and modification times. Hidden entries are left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            try:
                found = entry.stat()
            except OSError:  # a dangling link, or gone meanwhile: reading it will say so
                yield entry.name, 0, 0
            else:
                yield entry.name, None if entry.is_dir() else found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a file with the columns of the table. Names are dictionaries; missing columns are null."""

    table: pa.Table
    #: The whole file, if the table has no other columns.
    content: bytes | None = None


def read(path: str, table: Table) -> Rows:
    """Return the rows of a file.

    Raises: TornFileError: the file is torn. OSError: it cannot be read now.
    """
    content = Path(path).read_bytes()
    try:
        parquet = _opened(content, table)
        names = _columns(parquet, table)
        rows = parquet.read(list(names.values()), use_threads=False)
    except pa.ArrowMemoryError:
        raise
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise TornFileError(f"torn: {one_line(error)}", _rows_in_footer(content)) from None
    if len(rows) != parquet.metadata.num_rows:
        reason = f"torn: {len(rows)} of {parquet.metadata.num_rows} rows can be read"
        raise TornFileError(reason, parquet.metadata.num_rows)
    return Rows(_complete(rows, names, table), content if _is_alike(parquet.schema_arrow, table.held) else None)


def _rows_in_footer(content: bytes) -> int:
    """Return the number of rows in the footer of a torn file; 0: it has no readable footer."""
    try:
        return int(pq.read_metadata(pa.BufferReader(content)).num_rows)
    except (OSError, pa.ArrowException, ValueError):
        return 0


def one_line(error: BaseException) -> str:
    """Return the text of *error* in at most 200 characters."""
    return " ".join(str(error).split())[:200]


def _opened(content: bytes, table: Table) -> pq.ParquetFile:
    names = [each.name for each in table.held if pa.types.is_dictionary(each.type)]
    try:
        return pq.ParquetFile(pa.BufferReader(content), read_dictionary=names)
    except KeyError:  # it lacks one of them
        return pq.ParquetFile(pa.BufferReader(content))


def _columns(parquet: pq.ParquetFile, table: Table) -> dict[str, str]:
    """Map the table's columns to their names in the file. Raises: TornFileError: a column is ambiguous or mistyped."""
    found, held = parquet.schema_arrow, table.held
    if _is_alike(found, held):
        return {name: name for name in held.names}
    lower = [name.lower() for name in found.names]
    names = {}
    for each in table.arrow:
        if lower.count(each.name) > 1:
            raise TornFileError(f"column {each.name} is there more than once", parquet.metadata.num_rows)
        if each.name in lower:
            there = found.field(lower.index(each.name))
            if _plain(there.type) != each.type:
                raise TornFileError(f"column {each.name} is {there.type}, not {each.type}", parquet.metadata.num_rows)
            names[each.name] = there.name
    return names


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, however the file says that strings are held in memory."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if kind in (pa.large_string(), pa.string_view()) else kind


def _complete(rows: pa.Table, names: dict[str, str], table: Table) -> pa.Table:
    held = table.held
    if _is_alike(rows.schema, held):
        return pa.Table.from_arrays(rows.columns, schema=held)
    columns = []
    for each in table.arrow:
        if each.name not in names:
            columns.append(pa.chunked_array([pa.nulls(len(rows), held.field(each.name).type)]))
        else:
            columns.append(rows.column(names[each.name]).cast(each.type).cast(held.field(each.name).type))
    return pa.Table.from_arrays(columns, schema=held)


def _is_alike(schema: pa.Schema, held: pa.Schema) -> bool:
    """Whether the schemas are the same; nullability is ignored."""
    return bool(schema.names == held.names and schema.types == held.types)
