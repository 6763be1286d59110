"""Fitting a journal made from a model returns the model, and a poor fit is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, log, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal.schema import OPERATIONS
from aiopurgatory.pipeline.cleaning.versions import published
from aiopurgatory.pipeline.fit import fit
from aiopurgatory.pipeline.generate import Array, generate_table
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.minutes import sums
from aiopurgatory.pipeline.spark.tasks import Spark
from aiopurgatory.pipeline.workload.model import (
    FEW,
    MANY,
    ModelError,
    Workload,
    expected_shares,
    read_model,
    write_model,
)

from .journals import NOON, expired, operation, snapshot, write

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


NIGHT = datetime(2026, 11, 21, tzinfo=UTC)


def made(folder: Path, workload: Workload, count: int, keep_completed: float = 1.0) -> None:
    """Write the journal of an ideal purgatory for *count* operations; of the completed ones, a share."""
    table = generate_table([workload], count)
    done_us: Array = table["completion_us"].fill_null(1 << 60).to_numpy()
    timeout_us = table["timeout_us"].to_numpy()
    completed = done_us < timeout_us
    keys = table["keys"].to_pylist()
    kept = ~completed | (np.random.default_rng(9).random(count) < keep_completed)
    watched = table["arrival_us"].to_numpy() + workload.first_hour * 3_600_000_000
    columns: dict[str, Any] = {
        **{name: [value] * count for name, value in operation().items()},
        "purgatory": [workload.purgatory] * count,
        "kind": [workload.kind] * count,
        "key_count": [len(each) for each in keys],
        "key_hash": [each[0] * 7919 for each in keys],
        "watched_at": pa.array(watched + int(NIGHT.timestamp()) * 1_000_000, pa.timestamp("us", "UTC")),
        "waited_us": np.minimum(done_us, timeout_us),
        "timeout_us": timeout_us,
        "outcome": np.where(completed, "completed", "expired"),
        "lateness_us": pa.array(np.zeros(count, np.int64), mask=completed),
        "sequence": np.arange(count),
        "weight": np.where(completed, 1 / keep_completed, 1.0),
    }
    rows = pa.table({name: columns[name] for name in OPERATIONS.names}).cast(OPERATIONS).filter(pa.array(kept))
    place = folder / "journal" / "operations" / f"date={NIGHT:%Y-%m-%d}" / "hour=11"
    place.mkdir(parents=True)
    pq.write_table(rows, place / "a.parquet")


def fitted(spark: Spark, folder: Path, rows: Sequence[dict[str, Any]] = ()) -> list[Workload]:
    """Write *rows* by the day of their beginning, ingest the journal, and fit."""
    days = {row["watched_at"].date() for row in rows}
    for day in days:
        own = [row | {"sequence": number} for number, row in enumerate(rows) if row["watched_at"].date() == day]
        write(folder / "journal", own, f"{day}", at=own[0]["watched_at"])
    ingest(spark, str(folder / "journal"), str(folder / "clean"))
    return fit(spark, str(folder / "clean"))


def test_fit_recovers_the_model_within_two_percent(spark: Spark, tmp_path: Path) -> None:
    made(tmp_path, MADE, 100_000)
    (found,) = fitted(spark, tmp_path)
    assert (found.purgatory, found.kind, found.first_hour) == ("fetch", "Fetch", 11)
    assert found.p50_ms == pytest.approx(200, rel=0.02)
    assert found.sigma == pytest.approx(MADE.sigma, rel=0.02)
    assert found.at_once == pytest.approx(0.3, rel=0.02)
    assert found.zipf == pytest.approx(1.0, rel=0.02)
    assert found.arrivals_per_second[11] == pytest.approx(20, rel=0.02)
    assert found.arrivals_per_second[12] == pytest.approx(60, rel=0.02)
    assert dict(found.timeouts_ms) == pytest.approx({100.0: 0.5, 30_000.0: 0.5}, rel=0.02)
    assert dict(found.key_counts) == pytest.approx({1: 0.25, 3: 0.75}, rel=0.02)
    assert all(found.evidence[part]["fits"] for part in ("completion", "popularity"))
    assert "NOT" not in " ".join(found.findings)


def test_fit_honours_weights(spark: Spark, tmp_path: Path) -> None:
    made(tmp_path, MADE, 100_000, keep_completed=0.25)
    (found,) = fitted(spark, tmp_path)
    assert found.p50_ms == pytest.approx(200, rel=0.02)
    assert found.sigma == pytest.approx(MADE.sigma, rel=0.02)
    assert found.evidence["operations"] == pytest.approx(100_000, rel=0.02)
    assert found.arrivals_per_second[12] == pytest.approx(60, rel=0.02)
    assert found.timeouts_ms[0][1] == pytest.approx(0.5, rel=0.02)
    intervals = found.evidence["completion"]["intervals"]
    for name, value in (("p50_ms", 200.0), ("sigma", MADE.sigma), ("p99_ms", 200 * exp(MADE.sigma * 2.3263))):
        low, high = intervals[name]
        assert low < value < high
        assert 1 < high / low < 1.2
    assert " ".join(found.findings).count("(95 %: ") == 3


def test_fit_names_what_does_not_fit(spark: Spark, tmp_path: Path) -> None:
    rows = [
        operation(
            watched_at=NOON + timedelta(seconds=second),
            waited_us=100 if number % 2 else 4_000_000 + number,
            key_hash=0 if number % 2 else number + 100 * second,
        )
        for second in range(0, 600, 10)
        for number in range(100)
    ]
    (found,) = fitted(spark, tmp_path, rows)
    text = " ".join(found.findings)
    assert "ARE NOT LOG-NORMAL" in text
    assert "KEY POPULARITY IS NOT ZIPF" in text
    assert "23 of the 24 hours of the day were not seen" in text


def test_fit_twice_is_the_same_and_survives_json(spark: Spark, tmp_path: Path) -> None:
    made(tmp_path, MADE, 20_000)
    first, second = fitted(spark, tmp_path), fitted(spark, tmp_path)
    assert first == second
    write_model(first, tmp_path / "out" / "model.json")
    (back,) = read_model(tmp_path / "out" / "model.json")
    assert replace(back, evidence={}) == replace(first[0], evidence={})
    assert len(generate_table([back], 1_000)) == 1_000


def test_fit_nothing_completed_and_one_second_only(spark: Spark, tmp_path: Path) -> None:
    rows = [expired(timeout_us=5_000, waited_us=5_000), expired(timeout_us=None, waited_us=7_000)]
    (found,) = fitted(spark, tmp_path, rows)
    assert (found.p50_ms, found.arrivals_per_second[0]) == (None, 2.0)
    assert found.timeouts_ms == ((5.0, 0.5), (None, 0.5))
    assert any("NOTHING ENDED" in finding for finding in found.findings)


def test_fit_of_no_rows_is_no_model(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(waited_us=-1)])
    with pytest.raises(PurgatoryError, match="no operations in"):
        fitted(spark, tmp_path)


def test_fit_keeps_purgatories_and_kinds_apart(spark: Spark, tmp_path: Path) -> None:
    rows = [operation(purgatory=purgatory, kind=kind) for purgatory in "ab" for kind in "xy"]
    found = [(each.purgatory, each.kind) for each in fitted(spark, tmp_path, rows)]
    assert found == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fit_of_a_rare_kind_is_a_model(spark: Spark, tmp_path: Path, count: int) -> None:
    rare = [operation(kind="rare", purgatory="rare", key_hash=n, waited_us=5 + n) for n in range(count)]
    often = [operation(watched_at=NOON + timedelta(milliseconds=n), waited_us=1_000 + n) for n in range(500)]
    found = {each.kind: each for each in fitted(spark, tmp_path, rare + often)}
    assert found["rare"].evidence["operations"] == count
    assert found["rare"].zipf == 0.0


def test_fit_days_without_a_journal_are_not_idle(spark: Spark, tmp_path: Path) -> None:
    hour = [operation(watched_at=NOON + timedelta(milliseconds=600 * n), waited_us=1_000 + n) for n in range(6_000)]
    later = [row | {"watched_at": row["watched_at"] + timedelta(days=100)} for row in hour]
    (found,) = fitted(spark, tmp_path, hour + later)
    assert found.arrivals_per_second[12] == pytest.approx(6_000 / 3_600, rel=0.01)
    assert found.evidence["hours_seen"] == [12]


def test_fit_day_with_statistics_only_changes_nothing(spark: Spark, tmp_path: Path) -> None:
    rows = [operation(n) for n in range(500)]
    (before,) = fitted(spark, tmp_path, rows)
    tomorrow = NOON + timedelta(days=1)
    write(tmp_path / "journal", [snapshot(tomorrow)], "statistics", table="statistics", at=tomorrow)
    assert fitted(spark, tmp_path, rows) == [before]


def test_fit_silent_hours_between_others_are_idle(spark: Spark, tmp_path: Path) -> None:
    times = [NOON + timedelta(hours=hour, seconds=n) for hour in (0, 3) for n in range(600)]
    (found,) = fitted(spark, tmp_path, [operation(watched_at=at) for at in times])
    assert found.arrivals_per_second[12:15] == pytest.approx((1 / 6, 0.0, 0.0), rel=0.01)


def test_fit_cancelled_operations_do_not_count_as_expired(spark: Spark, tmp_path: Path) -> None:
    rows = [operation(watched_at=NOON + timedelta(seconds=n), waited_us=900_000 + n * 1_000) for n in range(60)]
    rows = [row | {"outcome": "cancelled" if n % 2 else "completed"} for n, row in enumerate(rows)]
    (found,) = fitted(spark, tmp_path, rows)
    assert found.evidence["shares"] == {"at once": 0.0, "ended": 1.0, "last try": 0.0, "expired": 0.0}
    assert expected_shares([found]) == {"fetch": 0.0}


def test_shapes_of_each_kind_of_row(spark: Spark, tmp_path: Path) -> None:
    rows = [
        operation(waited_us=0),
        operation(waited_us=1, key_count=3, weight=2.0),
        operation(waited_us=5_100, missed_trigger=True, timeout_us=None),
        operation(waited_us=0, outcome="failed", key_count=10_000),
        expired(),
    ]
    fitted(spark, tmp_path, rows)
    clean = str(tmp_path / "clean")
    (path,) = published(clean).files(clean, "shapes")
    found: dict[int, list[tuple[float, ...]]] = {}
    for row in pq.ParquetFile(path).read().to_pylist():
        numbers = tuple(row[name] for name in ("number", "operations", "squares", "total"))
        found.setdefault(row["what"], []).append(numbers)
    hour = int(NOON.timestamp()) // 3600
    assert found[sums.BY_HOUR] == [(hour, 6.0, 8.0, 0.0)]
    assert found[sums.AT_ONCE] == [(0, 2.0, 2.0, 0.0)]
    assert found[sums.ENDED] == [(0, 2.0, 4.0, 0.0)]
    assert found[sums.LAST_TRY] == [pytest.approx((546, 1.0, 1.0, log(5_100)))]
    assert found[sums.EXPIRED] == [pytest.approx((int(64 * log(501_000)), 1.0, 1.0, log(501_000)))]
    assert sorted((number < 0, total) for number, _, _, total in found[sums.TIMEOUTS]) == [(False, 2.5e6), (True, 0.0)]
    assert [(number, operations) for number, operations, _, _ in found[sums.KEY_COUNTS]] == [
        (1, 3.0),
        (3, 2.0),
        (64, 1.0),
    ]


def test_fit_marks_what_is_extrapolated(spark: Spark, tmp_path: Path) -> None:
    made(tmp_path, replace(MADE, timeouts_ms=((300.0, 1.0),)), 20_000)
    (found,) = fitted(spark, tmp_path)
    assert found.evidence["extrapolated_percentiles"] == [90, 99]
    assert found.evidence["hours_seen"] == [11]
    text = " ".join(found.findings)
    assert "Extrapolated: times over 300 ms, the longest that was seen." in text
    assert text.count(" (extrapolated)") == 2
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
