"""Fitting a journal made from a model returns the model, and a poor fit is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import exp, log, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.pipeline.fit import fit
from aiopurgatory.pipeline.generate import Array, generate_table
from aiopurgatory.pipeline.workload import aggregates
from aiopurgatory.pipeline.workload.model import FEW, MANY, ModelError, Workload, read_model, write_model

COLUMNS = (
    "purgatory STRING, kind STRING, key_count INT, key_hash BIGINT, watched_at TIMESTAMP, waited_us BIGINT, "
    "timeout_us BIGINT, outcome STRING, missed_trigger BOOLEAN, weight DOUBLE"
)
MADE = replace(
    MANY,
    purgatory="fetch",
    kind="Fetch",
    arrivals_per_second=(20.0,) * 12 + (60.0,) * 12,
    timeouts_ms=((100.0, 0.5), (30_000.0, 0.5)),
    key_counts=((1, 0.25), (3, 0.75)),
    key_space=500,
    zipf=1.0,
    at_once=0.3,
    first_hour=11,
)


def journal(spark: SparkSession, workload: Workload, count: int, keep_completed: float = 1.0) -> DataFrame:
    """Return the rows of an ideal purgatory for *count* operations; of the completed ones, a share."""
    table = generate_table([workload], count)
    done_us: Array = table["completion_us"].fill_null(1 << 60).to_numpy()
    timeout_us = table["timeout_us"].to_numpy()
    completed = done_us < timeout_us
    keys = table["keys"].to_pylist()
    random = np.random.default_rng(9)
    kept = ~completed | (random.random(count) < keep_completed)
    columns: dict[str, Any] = {
        "purgatory": [workload.purgatory] * count,
        "kind": [workload.kind] * count,
        "key_count": pa.array([len(each) for each in keys], pa.int32()),
        "key_hash": [each[0] * 7919 for each in keys],
        "watched_at": pa.array(
            table["arrival_us"].to_numpy() + workload.first_hour * 3_600_000_000, pa.timestamp("us", "UTC")
        ),
        "waited_us": np.minimum(done_us, timeout_us),
        "timeout_us": timeout_us,
        "outcome": np.where(completed, "completed", "expired"),
        "missed_trigger": np.zeros(count, bool),
        "weight": np.where(completed, 1 / keep_completed, 1.0),
    }
    return spark.createDataFrame(pa.table(columns).filter(pa.array(kept)))


def row(**changes: Any) -> tuple[Any, ...]:
    known: dict[str, Any] = {
        "purgatory": "p",
        "kind": "k",
        "key_count": 1,
        "key_hash": 1,
        "watched_at": datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC),
        "waited_us": 1_000,
        "timeout_us": 5_000,
        "outcome": "completed",
        "missed_trigger": False,
        "weight": 1.0,
    }
    return tuple({**known, **changes}.values())


def test_fit_recovers_the_model_within_two_percent(spark: SparkSession) -> None:
    (found,) = fit(journal(spark, MADE, 100_000))
    assert (found.purgatory, found.kind, found.first_hour) == ("fetch", "Fetch", 11)
    assert found.p50_ms == pytest.approx(200, rel=0.02)
    assert found.sigma == pytest.approx(MADE.sigma, rel=0.02)
    assert found.at_once == pytest.approx(0.3, rel=0.02)
    assert found.zipf == pytest.approx(1.0, rel=0.02)
    assert found.arrivals_per_second[11] == pytest.approx(20, rel=0.02)
    assert found.arrivals_per_second[12] == pytest.approx(60, rel=0.02)
    assert dict(found.timeouts_ms) == pytest.approx({100.0: 0.5, 30_000.0: 0.5}, rel=0.02)
    assert dict(found.key_counts) == pytest.approx({1: 0.25, 3: 0.75}, rel=0.02)
    assert all(found.evidence[part]["fits"] for part in ("poisson", "completion", "popularity"))
    text = " ".join(found.findings)
    assert "NOT" not in text
    assert "Arrivals are Poisson" in text


def test_fit_honours_weights(spark: SparkSession) -> None:
    (found,) = fit(journal(spark, MADE, 100_000, keep_completed=0.25))
    assert found.p50_ms == pytest.approx(200, rel=0.02)
    assert found.sigma == pytest.approx(MADE.sigma, rel=0.02)
    assert found.evidence["operations"] == pytest.approx(100_000, rel=0.02)
    assert found.arrivals_per_second[12] == pytest.approx(60, rel=0.02)
    assert found.evidence["poisson"]["fits"]
    assert found.timeouts_ms[0][1] == pytest.approx(0.5, rel=0.02)


def test_fit_names_what_does_not_fit(spark: SparkSession) -> None:
    begin = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp())
    rows = [
        row(
            watched_at=datetime.fromtimestamp(begin + second, UTC),
            waited_us=100 if number % 2 else 4_000_000 + number,
            key_hash=0 if number % 2 else number + 100 * second,
        )
        for second in range(0, 600, 10)
        for number in range(100)
    ]
    (found,) = fit(spark.createDataFrame(rows, COLUMNS))
    text = " ".join(found.findings)
    for sentence in (
        "ARRIVALS ARE NOT POISSON: they come in bursts",
        "ARE NOT LOG-NORMAL",
        "KEY POPULARITY IS NOT ZIPF",
    ):
        assert sentence in text
    assert "23 of the 24 hours of the day were not seen" in text


def test_fit_twice_is_the_same_and_survives_json(spark: SparkSession, tmp_path: Path) -> None:
    rows = journal(spark, MADE, 20_000)
    first, second = fit(rows), fit(rows.repartition(7))
    assert first[0].findings == second[0].findings
    write_model(first, tmp_path / "out" / "model.json")
    (back,) = read_model(tmp_path / "out" / "model.json")
    assert replace(back, evidence={}) == replace(first[0], evidence={})
    assert len(generate_table([back], 1_000)) == 1_000


def test_fit_nothing_completed_and_one_second_only(spark: SparkSession) -> None:
    rows = [row(outcome="expired", waited_us=5_000), row(outcome="cancelled", waited_us=7, timeout_us=None)]
    (found,) = fit(spark.createDataFrame(rows, COLUMNS))
    assert (found.p50_ms, found.arrivals_per_second[0]) == (None, 2.0)
    assert found.timeouts_ms == ((5.0, 0.5), (None, 0.5))
    assert any("NOTHING COMPLETED" in finding for finding in found.findings)


def test_fit_of_no_rows_is_no_model(spark: SparkSession) -> None:
    assert fit(spark.createDataFrame([], COLUMNS)) == []


def test_fit_keeps_purgatories_and_kinds_apart(spark: SparkSession) -> None:
    rows = [row(purgatory=purgatory, kind=kind) for purgatory in "ab" for kind in "xy"]
    assert [(each.purgatory, each.kind) for each in fit(spark.createDataFrame(rows, COLUMNS))] == [
        ("a", "x"),
        ("a", "y"),
        ("b", "x"),
        ("b", "y"),
    ]


def test_aggregates_of_each_kind_of_row(spark: SparkSession) -> None:
    second = [datetime(2026, 11, 21, 12, 0, each, tzinfo=UTC) for each in range(3)]
    rows = [
        row(watched_at=second[0], waited_us=0, key_hash=1),
        row(watched_at=second[1], waited_us=1, key_hash=1, key_count=3, weight=2.0),
        row(watched_at=second[1], waited_us=5_100, missed_trigger=True, key_hash=2, timeout_us=None),
        row(watched_at=second[2], waited_us=0, outcome="failed", key_hash=3, key_count=10_000),
    ]
    operations = spark.createDataFrame(rows, COLUMNS)
    begin = int(second[0].timestamp())
    found: dict[int, list[Row]] = {}
    for each in aggregates.aggregates(operations).collect():
        found.setdefault(each.what, []).append(each)
    (hour,) = found[aggregates.ARRIVALS]
    assert (hour.number, hour.weight, hour.squares, hour.squares_of_seconds) == (begin // 3600, 5.0, 7.0, 11.0)
    assert (hour["first"], hour["last"]) == ((begin, 1.0, 1.0), (begin + 2, 1.0, 1.0))
    assert [each[2:6] for each in found[aggregates.AT_ONCE]] == [(aggregates.AT_ONCE, 0, 1.0, 1.0)]
    assert [each[2:6] for each in found[aggregates.COMPLETED]] == [(aggregates.COMPLETED, 0, 2.0, 4.0)]
    (shorter,) = found[aggregates.SHORTER]
    assert (shorter.number, shorter.total, shorter.total_squares) == pytest.approx((546, log(5_100), log(5_100) ** 2))
    assert [each[2:6] for each in found[aggregates.LONGER]] == [(aggregates.LONGER, 0, 1.0, 1.0)]
    assert {(each.number is None, each.total, each.weight) for each in found[aggregates.TIMEOUTS]} == {
        (False, 20_000.0, 4.0),
        (True, 0.0, 1.0),
    }
    assert {each.number: each.weight for each in found[aggregates.KEY_COUNTS]} == {1: 2.0, 3: 2.0, 64: 1.0}
    assertDataFrameEqual(aggregates.keys_by_count(operations).select("count", "keys"), [(3.0, 1), (1.0, 2)])


def test_fit_states_intervals_around_its_estimates(spark: SparkSession) -> None:
    (found,) = fit(journal(spark, MADE, 100_000, keep_completed=0.25))
    intervals = found.evidence["intervals"]
    assert found.evidence["confidence"] == 0.95
    for name, value in (("p50_ms", found.p50_ms), ("sigma", found.sigma), ("zipf", found.zipf)):
        low, high = intervals[name]
        assert low < value < high
        assert 1 < high / low < 1.2
    low, high = intervals["p99_ms"]
    assert low < 200 * exp(MADE.sigma * 2.3263) < high
    assert sorted(intervals["arrivals_per_second"]) == ["11", "12"]
    low, high = intervals["arrivals_per_second"]["12"]
    assert low < found.arrivals_per_second[12] < high
    assert " ".join(found.findings).count("(95 %: ") == 6  # two rates, p50, p99, sigma, zipf


def test_fit_marks_what_is_extrapolated(spark: SparkSession) -> None:
    short = replace(MADE, timeouts_ms=((300.0, 1.0),))
    (found,) = fit(journal(spark, short, 20_000))
    assert found.evidence["extrapolated_beyond_ms"] == pytest.approx(300)
    assert found.evidence["extrapolated_percentiles"] == [90, 99]
    assert found.evidence["extrapolated_hours"] == [hour for hour in range(24) if hour != 11]
    text = " ".join(found.findings)
    assert "Extrapolated: p90, p99. No operation was seen for longer than 300 ms." in text
    assert text.count(", extrapolated)") == 1  # p99 with its interval
    assert " (extrapolated)" in text  # p90 has none
    assert "e+0" not in text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2, "workloads": []}', '{"version": 1, "workloads": [{"kind": "x"}]}'],
)
def test_read_model_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"model\.json"):
        read_model(path)


@pytest.mark.parametrize(
    "change",
    [
        {"arrivals_per_second": (1.0,)},
        {"arrivals_per_second": (0.0,) * 24},
        {"sigma": -1.0},
        {"p50_ms": 0.0},
        {"timeouts_ms": ()},
        {"timeouts_ms": ((-1.0, 1.0),)},
        {"timeouts_ms": ((nan, 1.0),)},
        {"timeouts_ms": None},
        {"timeouts_ms": (5.0,)},
        {"timeouts_ms": ((5.0, nan),)},
        {"arrivals_per_second": (nan,) * 24},
        {"arrivals_per_second": (None,) * 24},
        {"p50_ms": nan},
        {"p50_ms": "20"},
        {"sigma": nan},
        {"sigma": None},
        {"zipf": float("inf")},
        {"key_counts": ((1.5, 1.0),)},
        {"key_space": 1.5},
        {"first_hour": 24},
        {"kind": None},
        {"key_counts": ((1, 0.5),)},
        {"key_space": 0},
        {"at_once": 1.5},
    ],
)
def test_workload_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(change))} must be"):
        replace(FEW, **change)
