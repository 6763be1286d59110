"""Traces follow their model, and the same seed gives the same trace, whatever the partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.cli import main
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.generate import NO_TIMEOUT_US, trace
from aiopurgatory.pipeline.model import FEW, MANY, Workload, log_normal

MIXED = replace(
    FEW,
    purgatory="fetch",
    kind="mixed",
    arrivals_per_second=(10.0,) * 8 + (0.0,) * 8 + (30.0,) * 8,
    timeouts_ms=((200.0, 0.25), (None, 0.75)),
    key_counts=((1, 0.5), (4, 0.5)),
    key_ranks=(0.0, 1.0, 10.0, 1_000.0),
    completion_ms=(0.0,) * 200 + log_normal(20, 60)[100:900],
    first_hour=7,
)
NEVER = replace(
    MIXED, kind="never", completion_ms=(None,), key_ranks=(0.0, 9.0), first_hour=0, arrivals_per_second=(5.0,) * 24
)


def made(spark: SparkSession, count: int, *workloads: Workload, **options: Any) -> pa.Table:
    return trace(spark.range(count), workloads, **options).toArrow()


@pytest.mark.parametrize(
    ("workload", "p50_ms", "p75_ms", "share"), [(FEW, 20, 60, 0.078), (MANY, 200, 400, 0.5)], ids=["few", "many"]
)
def test_trace_has_the_percentiles_asked_for(
    spark: SparkSession, workload: Workload, p50_ms: float, p75_ms: float, share: float
) -> None:
    table = made(spark, 100_000, workload, rate=50_000)
    completion = table["completion_us"].to_numpy() / 1000
    assert np.percentile(completion, 50) == pytest.approx(p50_ms, rel=0.03)
    assert np.percentile(completion, 75) == pytest.approx(p75_ms, rel=0.03)
    assert (completion >= 200).mean() == pytest.approx(share, abs=0.015)
    gaps = np.diff(table["arrival_us"].to_numpy())
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(20, rel=0.02)
    assert gaps.std() == pytest.approx(20, rel=0.05)  # exponential: as large as the mean


def test_trace_keys_are_distinct_and_in_range(spark: SparkSession) -> None:
    keys = np.array(made(spark, 5_000, replace(FEW, key_counts=((5, 1.0),), key_ranks=(0.0, 10.0)))["keys"].to_pylist())
    assert keys.shape == (5_000, 5)
    assert set(keys.ravel()) == set(range(10))
    assert all(len(set(row)) == 5 for row in keys)
    few = made(spark, 100, replace(FEW, key_ranks=(0.0, 1.0)))["keys"].to_pylist()
    assert all(row[0] == 0 and len(set(row)) == 3 for row in few)  # more keys each than there are


def test_trace_mixture_follows_hours_shares_and_popularity(spark: SparkSession) -> None:
    table = made(spark, 210_000, MIXED, NEVER)
    hours = table["arrival_us"].to_numpy() // 3_600_000_000
    per_hour = np.bincount(hours, minlength=9)[:9] / 3600  # from 7 to 16 o'clock
    assert per_hour[0] == pytest.approx(15, rel=0.03)
    assert per_hour[1:8] == pytest.approx([5] * 7, rel=0.05)  # nobody but NEVER, from 8 to 16
    completion = table["completion_us"]
    assert completion.filter(pa.array((hours >= 1) & (hours <= 8))).null_count == ((hours >= 1) & (hours <= 8)).sum()
    first = completion.filter(pa.array(hours == 0))
    assert first.null_count / len(first) == pytest.approx(1 / 3, abs=0.015)
    assert (first.drop_null().to_numpy() == 0).mean() == pytest.approx(0.2, abs=0.015)
    assert (table["timeout_us"].to_numpy() == NO_TIMEOUT_US).mean() == pytest.approx(0.75, abs=0.015)
    counts = np.array([len(keys) for keys in table["keys"].to_pylist()])
    assert (counts == 1).mean() == pytest.approx(0.5, abs=0.015)
    firsts = np.array([keys[0] for keys in table.filter(completion.is_valid())["keys"].to_pylist()])
    shares = (firsts == 0).mean(), ((firsts > 0) & (firsts < 10)).mean(), (firsts >= 10).mean()
    assert shares == pytest.approx([1 / 3] * 3, abs=0.015)
    assert (firsts == 1).mean() == pytest.approx(1 / 27, abs=0.006)


def test_trace_of_two_workloads_mixes_them_from_the_start(spark: SparkSession) -> None:
    one = replace(FEW, arrivals_per_second=(100.0,) * 24, timeouts_ms=((1_000.0, 1.0),))
    other = replace(one, kind="other", timeouts_ms=((2_000.0, 1.0),))
    table = made(spark, 20_000, one, other)
    early = table["timeout_us"].to_numpy()[:2_000]
    assert (early == 2_000_000).mean() == pytest.approx(0.5, abs=0.05)
    assert len(table) / (table["arrival_us"][-1].as_py() / 1e6) == pytest.approx(200, rel=0.03)


def test_trace_of_a_fleet_is_of_one_instance(spark: SparkSession) -> None:
    fleet = replace(FEW, arrivals_per_second=(1_000.0,) * 24, instances=10.0)
    arrivals = made(spark, 5_000, fleet)["arrival_us"]
    assert 5_000 / (arrivals[-1].as_py() / 1e6) == pytest.approx(100, rel=0.05)


def test_trace_same_seed_same_trace_whatever_the_partitions(spark: SparkSession) -> None:
    once = made(spark, 1_000, MANY, seed=7)
    assert trace(spark.range(1_000).repartition(7), [MANY], seed=7).toArrow().equals(once)
    assert not made(spark, 1_000, MANY, seed=8).equals(once)


def test_trace_latencies_do_not_depend_on_the_rate(spark: SparkSession) -> None:
    slow, quick = (made(spark, 1_000, MANY, rate=rate) for rate in (1e3, 1e5))
    assert sorted(slow["completion_us"].to_pylist()) == sorted(quick["completion_us"].to_pylist())


@pytest.mark.parametrize("rate", [-1.0, 0.0, float("inf")])
def test_trace_impossible_rate_is_refused(spark: SparkSession, rate: float) -> None:
    with pytest.raises(PurgatoryError, match="rate must be > 0 per second"):
        trace(spark.range(1), [FEW], rate=rate)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--workload", "few", "--rows", "0"], "rows must be >= 1, got 0"), (["--model", "none"], "none is not a model")],
)
@pytest.mark.usefixtures("spark")
def test_command_generate_impossible_option_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "generate", *options, str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err


def test_command_generate_without_a_source_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", "generate", "out"])
    assert "one of the arguments --model --workload is required" in capsys.readouterr().err
