"""The table that simulate writes and advise reads: one Parquet file, replaced as a whole."""

from __future__ import annotations

import os
from io import BytesIO
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from aiopurgatory.errors import PurgatoryError

#: A row per setting and shard: the setting, and what its replay counted.
SCHEMA: Final = pa.schema(
    [
        ("design", pa.string()),
        ("tick_ms", pa.float64()),
        ("wheel_size", pa.int64()),
        ("purge_interval", pa.int64()),
        ("timeout_ms", pa.float64()),
        ("shard", pa.int64()),
        # Operations in the trace, and their ends. Those left have no deadline, or one more than a day after the trace.
        ("operations", pa.int64()),
        ("completed", pa.int64()),
        ("expired", pa.int64()),
        ("left", pa.int64()),
        ("span_us", pa.int64()),
        ("cascades", pa.int64()),
        ("wakeups", pa.int64()),
        ("wakeups_in_trace", pa.int64()),
        ("heap_operations", pa.int64()),
        ("purges", pa.int64()),
        ("purge_visits", pa.int64()),
        ("late_p50_us", pa.int64()),
        ("late_p99_us", pa.int64()),
        ("late_max_us", pa.int64()),
        ("peak_pending", pa.int64()),
        ("peak_listed", pa.int64()),
        ("peak_bytes", pa.int64()),
    ]
)
NAME: Final = "simulations.parquet"


class ResultsError(PurgatoryError):
    """There are no results, or they cannot be read."""


def write(table: pa.Table, folder: str) -> None:
    """Write *table* to *folder*, replacing an earlier one atomically."""
    content = BytesIO()
    pq.write_table(table.select(SCHEMA.names).cast(SCHEMA), content)
    replace_file(f"{folder}/{NAME}", content.getvalue())


def read(folder: str) -> pa.Table:
    """Return the table in *folder*. Raises: ResultsError: there is none, or it is another table."""
    system, path = _place(f"{folder}/{NAME}")
    try:
        with system.open_input_file(path) as file:
            table = pq.read_table(file)
    except FileNotFoundError:
        raise ResultsError(f"simulations must be a folder that simulate has written, got {folder}") from None
    except pa.ArrowInvalid as error:
        raise ResultsError(f"cannot read {folder}/{NAME}: {error}") from None
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise ResultsError(f"{folder}/{NAME} has no column {', '.join(missing)}: simulate again")
    return table.select(SCHEMA.names)


def replace_file(path: str, content: bytes) -> None:
    """Write *content* to *path* on any file system that pyarrow reaches: to a temporary file, which is then renamed.

    HDFS does not rename onto an existing file. There, the earlier file is removed right before the rename.
    """
    system, place = _place(path)
    folder, _, name = place.rpartition("/")
    system.create_dir(folder, recursive=True)
    prefix = f".{name}."
    temporary = f"{folder}/{prefix}{uuid4().hex}"
    try:
        with system.open_output_stream(temporary) as file:
            file.write(content)
        if system.type_name == "hdfs" and system.get_file_info(place).is_file:
            system.delete_file(place)
        system.move(temporary, place)
    finally:  # also remove what a killed run left
        for left in system.get_file_info(FileSelector(folder)):
            if left.base_name.startswith(prefix):
                system.delete_file(left.path)


def _place(path: str) -> tuple[FileSystem, str]:
    """Return the file system of *path*, and the path in it."""
    if "://" not in path:
        return LocalFileSystem(), os.path.abspath(path.removeprefix("file:"))
    system, place = FileSystem.from_uri(quote(path.replace("s3a://", "s3://", 1), safe=":/@"))
    return system, place
