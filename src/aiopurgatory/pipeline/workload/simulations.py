"""The table that simulate writes and advise reads: one Parquet file, replaced as a whole."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

from ..spark.folders import absolute, write_table

#: A row per setting: the setting, and the counts of its replay.
SCHEMA: Final = pa.schema(
    [
        ("tick_ms", pa.float64()),
        ("wheel_size", pa.int64()),
        ("purge_interval", pa.int64()),
        ("timeout_ms", pa.float64()),
        # Operations in the trace. Those left have no deadline, or one more than a day after the trace.
        ("operations", pa.int64()),
        ("expired", pa.int64()),
        ("left", pa.int64()),
        ("span_us", pa.int64()),
        ("cascades", pa.int64()),
        ("wakeups", pa.int64()),
        ("wakeups_in_trace", pa.int64()),
        ("heap_operations", pa.int64()),
        ("purges", pa.int64()),
        ("purge_visits", pa.int64()),
        ("late_p99_us", pa.int64()),
        ("peak_pending", pa.int64()),
        ("peak_bytes", pa.int64()),
    ]
)
NAME: Final = "simulations.parquet"


class SimulationsError(PurgatoryError):
    """There are no simulations, or they cannot be read."""


def write(table: pa.Table, folder: str) -> None:
    """Write *table* to *folder*, replacing an earlier one atomically."""
    write_table(f"{folder}/{NAME}", table.select(SCHEMA.names).cast(SCHEMA))


def read(folder: str) -> pa.Table:
    """Return the table in *folder*. Raises: SimulationsError: there is none, or it is another table."""
    try:
        table = pq.ParquetFile(f"{absolute(folder)}/{NAME}").read()
    except FileNotFoundError:
        raise SimulationsError(f"simulations must be a folder that simulate has written, got {folder}") from None
    except pa.ArrowInvalid as error:
        raise SimulationsError(f"cannot read {folder}/{NAME}: {error}") from None
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise SimulationsError(f"{folder}/{NAME} has no column {', '.join(missing)}: simulate again")
    return table.select(SCHEMA.names)
