"""Traces: requests with their keys, timeouts and times to completion, to be replayed.

A trace is Parquet, one file or a folder of them, with a row per request, in order of arrival:

| column          | type        |                                                                          |
| --------------- | ----------- | ------------------------------------------------------------------------ |
| `arrival_us`    | int64       | microseconds since the trace began                                       |
| `keys`          | list<int64> | the ids of its watch keys, at least one                                  |
| `completion_us` | int64       | microseconds from arrival to completion; null: nothing completes it      |
| `timeout_us`    | int64       | its timeout in microseconds                                              |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

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
    """A trace that cannot be made or replayed."""


def require_valid(trace: DataFrame) -> None:
    """Raises: TraceError: *trace* lacks a column, a column has another type, or rows break a rule.

    Cost: one pass over the four columns.
    """
    missing = set(SCHEMA.names) - set(trace.columns)
    if missing:
        raise TraceError(f"the trace is not a trace: it has no column {', '.join(sorted(missing))}")
    for name, kind in trace.select(*SCHEMA.names).dtypes:
        pattern, rule = (_LIST, "a list of integers") if name == "keys" else (_INTEGER, "an integer column")
        if not re.fullmatch(pattern, kind):
            raise TraceError(f"{name} must be {rule}, got {kind}")
    counts = [f"count_if({condition}) AS {name}" for name, condition in _BROKEN.items()]
    (found,) = trace.selectExpr("count(*) AS rows", *counts).collect()
    if not found["rows"]:
        raise TraceError("a trace must have at least one request, got none")
    for name, rule in _RULES.items():
        if found[name]:
            raise TraceError(f"{name} must be {rule}, got {found[name]:,} of {found['rows']:,} rows that are not")
