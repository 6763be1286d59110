"""Traces can be kept and replayed, and what is none is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.workload.model import FEW
from aiopurgatory.pipeline.workload.trace import read_trace, write_trace


def test_trace_comes_back_from_parquet(tmp_path: Path) -> None:
    table = generate_table([FEW], 1_000)
    write_trace(table, tmp_path / "trace.parquet")
    assert read_trace(tmp_path / "trace.parquet").equals(table)


def test_read_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"arrival_us": [1]}), tmp_path / "other.parquet")
    with pytest.raises(
        ValueError, match=r"other.parquet is no trace: it has no column completion_us, keys, timeout_us"
    ):
        read_trace(tmp_path / "other.parquet")


def test_read_trace_out_of_order_is_refused(tmp_path: Path) -> None:
    table = generate_table([FEW], 10)
    write_trace(table.take(list(range(9, -1, -1))), tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="must be in order of arrival_us"):
        read_trace(tmp_path / "trace.parquet")
