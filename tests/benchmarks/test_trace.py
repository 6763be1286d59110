"""Traces are what the seed's benchmark says, and can be kept and replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from workload.trace import FEW, MANY, SCHEMA, Workload, as_requests, read_trace, write_trace


@pytest.mark.parametrize(("workload", "share"), [(FEW, 0.078), (MANY, 0.5)], ids=["few", "many"])
def test_generate_has_the_percentiles_asked_for(workload: Workload, share: float) -> None:
    table = workload.generate(100_000, rate=50_000)
    completion = table["completion_us"].to_numpy() / 1000
    assert np.percentile(completion, 50) == pytest.approx(workload.p50_ms, rel=0.03)
    assert np.percentile(completion, 75) == pytest.approx(workload.p75_ms, rel=0.03)
    assert (completion >= workload.timeout_ms).mean() == pytest.approx(share, abs=0.01)
    gaps = np.diff(table["arrival_us"].to_numpy())
    assert gaps.mean() == pytest.approx(20, rel=0.02)
    assert gaps.std() == pytest.approx(20, rel=0.05)  # exponential: as large as the mean


def test_generate_keys_are_distinct_and_in_range() -> None:
    keys = np.array(Workload("x", 20, 60, keys_each=5, key_space=10).generate(5_000, 1_000.0)["keys"].to_pylist())
    assert keys.shape == (5_000, 5)
    assert set(keys.ravel()) == set(range(10))
    assert all(len(set(row)) == 5 for row in keys)


def test_generate_same_seed_same_trace() -> None:
    assert MANY.generate(1_000, 1e4, seed=7).equals(MANY.generate(1_000, 1e4, seed=7))
    assert not MANY.generate(1_000, 1e4, seed=7).equals(MANY.generate(1_000, 1e4, seed=8))


def test_generate_latencies_do_not_depend_on_the_rate() -> None:
    slow, quick = (MANY.generate(1_000, rate) for rate in (1e3, 1e5))
    assert slow["completion_us"].equals(quick["completion_us"])


def test_trace_comes_back_from_parquet(tmp_path: Path) -> None:
    table = FEW.generate(1_000, 1e4)
    write_trace(table, tmp_path / "trace.parquet")
    assert read_trace(tmp_path / "trace.parquet").equals(table)


def test_as_requests_null_or_late_completion_is_none(tmp_path: Path) -> None:
    columns = {
        "arrival_us": [0, 5, 9],
        "keys": [[1, 2], [3], []],
        "completion_us": [4_999, None, 200_000],
        "timeout_us": [5_000, 5_000, 200_000],
    }
    write_trace(pa.table(columns, schema=SCHEMA), tmp_path / "trace.parquet")
    assert as_requests(read_trace(tmp_path / "trace.parquet")) == [
        ((1, 2), 0.005, 4),
        ((3,), 0.005, None),
        ((), 0.2, None),
    ]


def test_read_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"arrival_us": [1]}), tmp_path / "other.parquet")
    with pytest.raises(
        ValueError, match=r"other.parquet is no trace: it has no column completion_us, keys, timeout_us"
    ):
        read_trace(tmp_path / "other.parquet")


def test_read_trace_out_of_order_is_refused(tmp_path: Path) -> None:
    table = FEW.generate(10, 1e4)
    write_trace(table.take(list(range(9, -1, -1))), tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="must be in order of arrival_us"):
        read_trace(tmp_path / "trace.parquet")
