"""A table that breaks a rule of traces is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.workload.model import FEW
from aiopurgatory.pipeline.workload.trace import (
    SCHEMA,
    SPARK_SCHEMA,
    TraceError,
    require_valid,
)

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
def test_bad_rows_are_refused(spark: SparkSession, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [GOOD, GOOD | change, GOOD, GOOD | change, GOOD]
    table = pa.Table.from_pylist(rows, pa.schema([pa.field(each.name, each.type) for each in SCHEMA]))
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(TraceError, match=f"^{message}"):
        require_valid(spark.read.parquet(str(tmp_path / "bad.parquet")))


def test_require_valid_accepts_a_generated_trace(spark: SparkSession) -> None:
    require_valid(spark.createDataFrame(generate_table([FEW], 1_000)))


def test_require_valid_of_no_rows_or_other_columns_is_refused(spark: SparkSession) -> None:
    with pytest.raises(TraceError, match="a trace must have at least one request, got none"):
        require_valid(spark.createDataFrame([], SPARK_SCHEMA))
    with pytest.raises(TraceError, match="the trace is not a trace: it has no column completion_us, keys, timeout_us"):
        require_valid(spark.range(3).withColumnRenamed("id", "arrival_us"))
    with pytest.raises(TraceError, match="timeout_us must be an integer column, got string"):
        require_valid(
            spark.createDataFrame([(0, [1], None, "5")], SPARK_SCHEMA.replace("timeout_us BIGINT", "timeout_us STRING"))
        )
