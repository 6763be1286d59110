"""Traces: requests with their keys, their timeouts and the time to their completion; written down to be replayed.

A trace is Parquet, one file or a folder of them, with a row per request, in order of arrival:

| column          | type        |                                                                          |
| --------------- | ----------- | ------------------------------------------------------------------------ |
| `arrival_us`    | int64       | microseconds since the trace began                                       |
| `keys`          | list<int64> | the ids of its watch keys                                                |
| `completion_us` | int64       | from its arrival to what completes it; null: nothing was seen to         |
| `timeout_us`    | int64       | how long it waits at most                                                |
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA: Final = pa.schema(
    [
        pa.field("arrival_us", pa.int64(), nullable=False),
        pa.field("keys", pa.list_(pa.int64()), nullable=False),
        pa.field("completion_us", pa.int64()),
        pa.field("timeout_us", pa.int64(), nullable=False),
    ]
)
#: The same for Spark.
SPARK_SCHEMA: Final = (
    "arrival_us BIGINT NOT NULL, keys ARRAY<BIGINT> NOT NULL, completion_us BIGINT, timeout_us BIGINT NOT NULL"
)
#: Longer than any deadline that a purgatory keeps: it waits until it is completed.
NO_TIMEOUT_US: Final = 1 << 53


def write_trace(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def read_trace(path: Path) -> pa.Table:
    """Raises: ValueError: no trace, or out of order."""
    table = pq.read_table(path)
    missing = set(SCHEMA.names) - set(table.column_names)
    if missing:
        raise ValueError(f"{path} is no trace: it has no column {', '.join(sorted(missing))}")
    table = table.select(SCHEMA.names).cast(SCHEMA)
    arrivals = table["arrival_us"].to_numpy()
    if (np.diff(arrivals) < 0).any():
        raise ValueError(f"{path} must be in order of arrival_us")
    return table
