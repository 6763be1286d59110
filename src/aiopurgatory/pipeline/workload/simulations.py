"""The table that simulate writes and advise reads: one Parquet file, replaced as a whole."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

from ..spark.folders import absolute, write_table

#: The columns of whole numbers. Operations *left* have no deadline, or one more than a day after the trace.
_COUNTS: Final = (
    *("wheel_size", "purge_interval", "operations", "expired", "left", "span_us", "cascades", "wakeups"),
    *("wakeups_in_trace", "heap_operations", "purges", "purge_visits", "late_p99_us", "peak_pending", "peak_bytes"),
)
#: A row per setting: the setting, and the counts of its replay.
SCHEMA: Final = pa.schema(
    [*((name, pa.float64()) for name in ("tick_ms", "timeout_ms")), *((name, pa.int64()) for name in _COUNTS)]
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
