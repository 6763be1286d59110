"""Traces: requests with their keys, timeouts and times to completion, to be replayed.

A trace is a folder of Parquet files with a row per request, in order of arrival:

| column          | type        |                                                                          |
| --------------- | ----------- | ------------------------------------------------------------------------ |
| `arrival_us`    | int64       | microseconds since the trace began                                       |
| `keys`          | list<int64> | the ids of its watch keys, at least one                                  |
| `completion_us` | int64       | microseconds from arrival to completion; null: nothing completes it      |
| `timeout_us`    | int64       | its timeout in microseconds                                              |
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

SCHEMA: Final = pa.schema(
    [
        pa.field("arrival_us", pa.int64(), nullable=False),
        pa.field("keys", pa.list_(pa.int64()), nullable=False),
        pa.field("completion_us", pa.int64()),
        pa.field("timeout_us", pa.int64(), nullable=False),
    ]
)
#: The file that generate writes.
NAME: Final = "trace.parquet"
#: Longer than any deadline that a purgatory keeps: such an operation waits until it is completed.
NO_TIMEOUT_US: Final = 1 << 53


class TraceError(PurgatoryError):
    """A trace that cannot be made or replayed."""


def read_trace(folder: str) -> pa.Table:
    """Return the trace in *folder*, in order of arrival.

    Raises: TraceError: there is none, it lacks a column, a column has another type, or rows break a rule.
    """
    place = Path(folder)
    files = [place] if place.is_file() else sorted(place.glob("*.parquet"))
    if not files:
        raise TraceError(f"trace must be a folder that generate has written, got {folder}")
    try:
        parts = [pq.ParquetFile(file).read(SCHEMA.names) for file in files]
        trace = pa.concat_tables([pa.table([part[name] for name in SCHEMA.names], SCHEMA.names) for part in parts])
        trace = trace.cast(pa.schema([field.with_nullable(True) for field in SCHEMA]))
    except (pa.ArrowException, KeyError, OSError) as error:
        raise TraceError(f"{folder} is not a trace: {error}") from None
    if not len(trace):
        raise TraceError("a trace must have at least one request, got none")
    arrival, keys, completion, timeout = (trace[name].combine_chunks() for name in SCHEMA.names)
    no_null = np.ones(len(trace), bool)
    no_null[pc.list_parent_indices(keys).filter(pc.is_null(pc.list_flatten(keys))).to_numpy()] = False
    some_keys = pc.and_kleene(pa.array(no_null), pc.greater(pc.list_value_length(keys), 0))
    holds = {
        "arrival_us must be >= 0 and not null": pc.greater_equal(arrival, 0),
        "keys must be a list of at least one key, none of them null": some_keys,
        "completion_us must be >= 0, or null": pc.fill_null(pc.greater_equal(completion, 0), True),
        "timeout_us must be >= 0 and not null": pc.greater_equal(timeout, 0),
    }
    for rule, kept in holds.items():
        bad = len(kept) - (pc.sum(kept).as_py() or 0)
        if bad:
            raise TraceError(f"{rule}, got {bad:,} of {len(trace):,} rows that are not")
    if (np.diff(arrival.to_numpy()) < 0).any():
        trace = trace.take(np.argsort(arrival.to_numpy(), kind="stable"))
    return trace.cast(SCHEMA)
