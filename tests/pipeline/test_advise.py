"""The advice is the cheapest that is on time, and what it says of the others is what was simulated."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from aiopurgatory.pipeline.advise import AdviceError, Option, advise, choose, summed
from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.replay.settings import OLD, Setting
from aiopurgatory.pipeline.simulate import RESULT, grid, measures
from aiopurgatory.pipeline.workload.model import FEW, MANY, Workload

PLAIN: dict[str, Any] = {
    "design": "new",
    "tick_ms": 1.0,
    "wheel_size": 20,
    "purge_interval": 0,
    "timeout_ms": None,
    "shard": 0,
    "operations": 1_000_000,
    "completed": 900_000,
    "expired": 100_000,
    "left": 0,
    "span_us": 10_000_000,
    "cascades": 50_000,
    "wakeups": 10_100,
    "wakeups_in_trace": 10_000,
    "heap_operations": 20_000,
    "purges": 0,
    "purge_visits": 0,
    "late_p50_us": 500,
    "late_p99_us": 990,
    "late_max_us": 1_000,
    "peak_pending": 5_000,
    "peak_listed": 15_000,
    "peak_bytes": 2_000_000,
}
COARSE = {"tick_ms": 10.0, "wakeups": 1_010, "wakeups_in_trace": 1_000, "late_p99_us": 9_900, "late_max_us": 10_000}
PURGING = {"purge_interval": 1_000, "purges": 990, "purge_visits": 16_000_000, "peak_bytes": 3_000_000}
OLDER = {**PURGING, "design": "old", "tick_ms": None, "wheel_size": None, "heap_operations": 1_900_000}
SHORTER = {"timeout_ms": 50.0, "expired": 400_000, "completed": 600_000, "peak_pending": 3_000, "wakeups": 1}


def simulations(spark: SparkSession, *changes: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple({**PLAIN, **change}.values()) for change in changes], RESULT)


def test_advise_is_the_cheapest_on_time(spark: SparkSession) -> None:
    found = simulations(spark, {}, COARSE, PURGING, OLDER, SHORTER)
    assert "Use `Purgatory(tick=0.01, wheel_size=20, purge_interval=0)`" in advise(found)
    text = advise(found, late_ms=5)
    assert "Use `Purgatory(tick=0.001, wheel_size=20, purge_interval=0)`" in text
    assert "tick=0.01, wheel_size=20, purge_interval=0: 8% less CPU time, 90% less wake-ups" in text
    assert "time-outs 9.9 ms late, which is too late" in text
    assert "purges (990) look at 16.0 entries per operation" in text
    assert "With a timeout of 50 ms for all, 40.0% instead of 10.0% would run out of time" in text
    assert text.count("\n| ") == 2 + 5
    assert "| **tick=0.001, wheel_size=20, purge_interval=0** |" in text


def test_advise_near_the_same_cost_stays_with_the_defaults(spark: SparkSession) -> None:
    slightly = {"wheel_size": 64, "cascades": 0}
    assert "wheel_size=20" in advise(simulations(spark, {}, slightly)).splitlines()[2]


def test_summed_adds_the_shards_up(spark: SparkSession) -> None:
    (row,) = summed(simulations(spark, {}, {"shard": 1, "late_p99_us": 700, "peak_pending": 1})).collect()
    option = Option(row)
    assert (row.shards, row.operations, row.late_p99_us, row.peak_pending) == (2, 2_000_000, 990, 5_001)
    assert option.wakeups_per_second == 1_000  # of one process
    assert "on 2 processes" in advise(simulations(spark, {}, {"shard": 1}))


def test_advise_without_a_setting_to_choose_is_refused(spark: SparkSession) -> None:
    with pytest.raises(AdviceError, match="must have a setting of the library"):
        advise(simulations(spark, OLDER, SHORTER))
    with pytest.raises(AdviceError, match=r"what the finest tick gives \(0.99 ms\), got 0.5 ms"):
        advise(simulations(spark, {}), late_ms=0.5)


@pytest.mark.parametrize("workload", [FEW, MANY], ids=["few", "many"])
def test_advise_of_the_seeds_benchmark_old_against_new(spark: SparkSession, workload: Workload) -> None:
    table = generate_table([workload], 10_000, rate=50_000)
    settings = grid([1.0, 10.0], [20, 256], [0, 1000], [None], [1000, 10000])
    setting_of = {setting: [getattr(setting, name) for name in Setting.__dataclass_fields__] for setting in settings}
    names = [column.split()[0] for column in RESULT.split(", ")]
    rows = []
    for setting, values in setting_of.items():
        row = dict(zip(Setting.__dataclass_fields__, values, strict=True)) | {"shard": 0} | measures(table, setting)
        rows.append(tuple(row[name] for name in names))
    found = spark.createDataFrame(rows, RESULT)
    options = [Option(row) for row in summed(found).collect()]
    best = choose(options, 20.0)
    assert best.setting.purge_interval == 0
    old = [option for option in options if option.setting.design == OLD]
    assert all(option.each("heap_operations") > 20 * best.each("heap_operations") for option in old)
    assert all(option.row.peak_listed > 1.3 * best.row.peak_listed for option in old)
    text = advise(found)
    assert text.count("The old purgatory") == 2
    share = {"few": 0.078, "many": 0.5}[workload.kind]
    assert best.expired == pytest.approx(share, abs=0.02)
