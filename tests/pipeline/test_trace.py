"""A table that breaks a rule of traces is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.workload.model import FEW
from aiopurgatory.pipeline.workload.trace import SCHEMA, TraceError, read_trace

BAD: list[tuple[dict[str, Any], str]] = [
    ({"arrival_us": -1}, "arrival_us must be >= 0 and not null, got 2 of 5 rows"),
    ({"arrival_us": None}, "arrival_us must be >= 0 and not null, got 2 of 5 rows"),
    ({"keys": []}, "keys must be a list of at least one key, none of them null, got 2 of 5 rows"),
    ({"keys": None}, "keys must be a list of at least one key, none of them null, got 2 of 5 rows"),
    ({"keys": [1, None, None]}, "keys must be a list of at least one key, none of them null, got 2 of 5 rows"),
    ({"completion_us": -5}, "completion_us must be >= 0, or null, got 2 of 5 rows"),
    ({"timeout_us": -1}, "timeout_us must be >= 0 and not null, got 2 of 5 rows"),
    ({"timeout_us": None}, "timeout_us must be >= 0 and not null, got 2 of 5 rows"),
]
GOOD: dict[str, Any] = {"arrival_us": 0, "keys": [1, 2], "completion_us": None, "timeout_us": 0}


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_rows_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [GOOD, GOOD | change, GOOD, GOOD | change, GOOD]
    table = pa.Table.from_pylist(rows, pa.schema([pa.field(each.name, each.type) for each in SCHEMA]))
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(TraceError, match=f"^{message}"):
        read_trace(str(tmp_path))


def test_read_trace_is_a_generated_trace_in_order(tmp_path: Path) -> None:
    trace = generate_table([FEW], 1_000)
    pq.write_table(trace.slice(500), tmp_path / "a.parquet")
    pq.write_table(trace.slice(0, 500), tmp_path / "b.parquet")
    assert read_trace(str(tmp_path)).equals(trace)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (SCHEMA.empty_table(), "a trace must have at least one request, got none"),
        (pa.table({"arrival_us": [1]}), "is not a trace"),
        (generate_table([FEW], 3).set_column(3, "timeout_us", pa.array(["x"] * 3)), "is not a trace"),
    ],
)
def test_read_trace_of_another_table_is_refused(tmp_path: Path, table: pa.Table, message: str) -> None:
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(TraceError, match=message):
        read_trace(str(tmp_path))
