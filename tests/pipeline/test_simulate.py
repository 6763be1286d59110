"""Simulations: every setting and shard once, and each what a replay of its share gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.replay.settings import OLD, Setting
from aiopurgatory.pipeline.simulate import RESULT, grid, measures, simulate
from aiopurgatory.pipeline.workload.model import MANY
from aiopurgatory.pipeline.workload.trace import SCHEMA, SPARK_SCHEMA, write_trace

SETTINGS = grid([1.0, 10.0], [20], [0, 100], [None, 50.0], [100])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return generate_table([MANY], 3_000, rate=10_000)


@pytest.fixture
def trace(spark: SparkSession, table: pa.Table, tmp_path: Path) -> DataFrame:
    write_trace(table, tmp_path / "trace.parquet")
    return spark.read.parquet(str(tmp_path / "trace.parquet"))


def by_setting(found: DataFrame) -> dict[tuple[Setting, int], dict[str, Any]]:
    rows = [row.asDict() for row in found.collect()]
    names = Setting.__dataclass_fields__
    return {(Setting(**{name: row.pop(name) for name in names}), row.pop("shard")): row for row in rows}


def test_grid_is_every_combination_once() -> None:
    assert len(SETTINGS) == 2 * 1 * 2 * 2 + 2
    assert grid([1.0, 1.0], [20]) == [Setting()]
    assert Setting(OLD, None, None, 100, 50.0) in SETTINGS


def test_simulate_gives_each_setting_what_its_replay_gives(trace: DataFrame, table: pa.Table) -> None:
    found = by_setting(simulate(trace, SETTINGS))
    assert found == {(setting, 0): measures(table, setting) for setting in SETTINGS}


def test_simulate_shards_share_the_operations_by_first_key(
    spark: SparkSession, trace: DataFrame, table: pa.Table
) -> None:
    found = by_setting(simulate(trace, [Setting()], shards=3))
    assert {shard for _, shard in found} == {0, 1, 2}
    assert sum(row["operations"] for row in found.values()) == table.num_rows
    keys = spark.createDataFrame([(key,) for key in range(100)], "key BIGINT").selectExpr("key", "pmod(hash(key), 3) s")
    shard_of = {row.key: row.s for row in keys.collect()}
    firsts = np.array([shard_of[row[0]] for row in table["keys"].to_pylist()])
    for shard in range(3):
        share = table.filter(pa.array(firsts == shard))
        assert found[Setting(), shard] == measures(share, Setting())


def test_simulate_order_of_rows_and_partitions_do_not_matter(trace: DataFrame) -> None:
    settings = [Setting(), Setting(OLD, None, None, 100)]
    ties = trace.selectExpr("arrival_us div 5000 * 5000 AS arrival_us", "keys", "completion_us", "timeout_us")
    once = simulate(ties, settings)
    again = simulate(ties.repartition(7).sort("timeout_us", "completion_us"), settings)
    assertDataFrameEqual(once, again)


def test_simulate_keeps_its_schema_and_an_empty_trace_has_no_rows(spark: SparkSession) -> None:
    found = simulate(spark.createDataFrame([], SPARK_SCHEMA), [Setting()])
    assert found.schema.simpleString() == spark.createDataFrame([], RESULT).schema.simpleString()
    assert found.collect() == []


def test_simulate_null_completion_and_mixed_key_counts(spark: SparkSession) -> None:
    rows = [(0, [1], None, 5_000), (0, [1, 2, 3], 2_000, 5_000), (1_000_000, [9], 0, 5_000)]
    (row,) = simulate(spark.createDataFrame(rows, SPARK_SCHEMA), [Setting()]).collect()
    assert (row.operations, row.completed, row.expired, row.left) == (3, 2, 1, 0)
    assert (row.peak_pending, row.span_us, row.late_max_us) == (2, 1_000_000, 0)


@pytest.mark.parametrize(("settings", "shards"), [([], 1), ([Setting()], 0)])
def test_simulate_argument_out_of_range_is_refused(trace: DataFrame, settings: list[Setting], shards: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        simulate(trace, settings, shards=shards)


def test_trace_schema_is_the_same_for_spark(trace: DataFrame) -> None:
    assert trace.columns == SCHEMA.names
