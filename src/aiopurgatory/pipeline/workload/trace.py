"""Traces: requests with their keys, timeouts and times to completion, to be replayed.

A trace is Parquet, one file or a folder of them, with a row per request, in order of arrival:

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

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.errors import PurgatoryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
#: Longer than any deadline that a purgatory keeps: such an operation waits until it is completed.
NO_TIMEOUT_US: Final = 1 << 53

_RULES: Final = {
    "arrival_us": ">= 0 and not null",
    "keys": "a list of at least one key, none of them null",
    "completion_us": ">= 0, or null",
    "timeout_us": ">= 0 and not null",
}
# Each gives true for a row that breaks the rule, and never null.
_BROKEN: Final = {
    "arrival_us": "arrival_us IS NULL OR arrival_us < 0",
    "keys": "keys IS NULL OR size(keys) < 1 OR exists(keys, key -> key IS NULL)",
    "completion_us": "completion_us IS NOT NULL AND completion_us < 0",
    "timeout_us": "timeout_us IS NULL OR timeout_us < 0",
}

_INTEGER: Final = "tinyint|smallint|int|bigint"
_LIST: Final = f"array<({_INTEGER})>"


class TraceError(PurgatoryError):
    """A trace that cannot be made, read or replayed."""


def write_trace(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def read_trace(path: Path) -> pa.Table:
    """Raises: TraceError: the file is not a trace, breaks a rule, or is out of order."""
    try:
        table = pq.read_table(path)
        _require_columns(table.column_names, str(path))
        table = table.select(SCHEMA.names).cast(pa.schema([each.with_nullable(True) for each in SCHEMA]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TraceError(f"{path} is not a trace: {error}") from error
    _refuse({name: _bad_rows(table, name) for name in _RULES}, len(table), f"{path}: ")
    if (np.diff(table["arrival_us"].to_numpy()) < 0).any():
        raise TraceError(f"{path} must be in order of arrival_us")
    return table.cast(SCHEMA)


def require_valid(trace: DataFrame) -> None:
    """Raises: TraceError: *trace* lacks a column, a column has another type, or rows break a rule.

    Cost: one pass over the four columns.
    """
    from pyspark.sql import functions as F

    _require_columns(trace.columns, "the trace")
    for name, kind in trace.select(*SCHEMA.names).dtypes:
        pattern, rule = (_LIST, "a list of integers") if name == "keys" else (_INTEGER, "an integer column")
        if not re.fullmatch(pattern, kind):
            raise TraceError(f"{name} must be {rule}, got {kind}")
    counts = [F.expr(f"count_if({condition})").alias(name) for name, condition in _BROKEN.items()]
    found = trace.agg(F.count(F.lit(1)).alias("rows"), *counts).first()
    if found is not None:
        _refuse({name: found[name] for name in _BROKEN}, found["rows"])


def _require_columns(names: Sequence[str], what: str) -> None:
    missing = set(SCHEMA.names) - set(names)
    if missing:
        raise TraceError(f"{what} is not a trace: it has no column {', '.join(sorted(missing))}")


def _bad_rows(table: pa.Table, name: str) -> int:
    column = table[name]
    if name == "keys":
        lists = column.combine_chunks()
        lengths = lists.value_lengths().fill_null(0).to_numpy()
        row = np.repeat(np.arange(len(lists)), lengths)
        with_null = np.unique(row[lists.flatten().is_null().to_numpy(zero_copy_only=False)])
        return int((lengths == 0).sum() + len(with_null))
    known = column.drop_null().to_numpy()
    return int((known < 0).sum() + (column.null_count if name != "completion_us" else 0))


def _refuse(broken: dict[str, int], rows: int, where: str = "") -> None:
    if not rows:
        raise TraceError(f"{where}a trace must have at least one request, got none")
    for name, count in broken.items():
        if count:
            raise TraceError(f"{where}{name} must be {_RULES[name]}, got {count:,} of {rows:,} rows that are not")
