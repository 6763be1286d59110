"""Sums of literal rows have the shapes that fit needs, and a journal made from a model gives back the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal.schema import OPERATIONS
from aiopurgatory.pipeline.fit import (
    AT_ONCE,
    ENDED,
    EXPIRED,
    LAST_TRY,
    completions,
    coverage,
    fit,
    instances,
    popularities,
    ranks,
)
from aiopurgatory.pipeline.generate import trace
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.model import MANY, QUANTILES, Workload, log_normal, read_model, to_json
from aiopurgatory.pipeline.tables import DAY, ERROR, GROWTH, HOUR, SECOND

from .journals import NOON, expired, operation, write

MADE = replace(
    MANY,
    purgatory="fetch",
    kind="Fetch",
    arrivals_per_second=(20.0,) * 12 + (60.0,) * 12,
    timeouts_ms=((100.0, 0.5), (30_000.0, 0.5)),
    key_counts=((1, 0.25), (3, 0.75)),
    key_ranks=(0.0, 5.0, 100.0, 500.0),
    completion_ms=(0.0,) * 300 + log_normal(200, 400)[150:850],
    first_hour=11,
)
NIGHT = datetime(2026, 11, 21, tzinfo=UTC)


def test_popularities_count_keys_by_operations_to_three_digits(spark: SparkSession) -> None:
    rows = [("a", 1, 2.0), ("a", 1, 3.0), ("a", 2, 5.0), ("a", 3, 12_340.0), ("a", 4, 12_341.0), ("b", 1, 0.5)]
    keys = spark.createDataFrame(rows, "purgatory STRING, key_hash BIGINT, operations DOUBLE")
    expected = [("a", 5.0, 2.0), ("a", 12_340.5, 2.0), ("b", 0.5, 1.0)]
    schema = "purgatory STRING, operations DOUBLE, keys DOUBLE"
    assertDataFrameEqual(popularities(keys), spark.createDataFrame(expected, schema))


def test_coverage_joins_days_at_midnight_and_leaves_gaps(spark: SparkSession) -> None:
    day = 20_000 * DAY

    def ends(purgatory: str, number: int, first: int, last: int) -> tuple[Any, ...]:
        begin = day + number * DAY
        return purgatory, (begin + first * SECOND) // HOUR, begin + first * SECOND, begin + last * SECOND - 1

    rows = [ends("a", 0, 23 * 3600, 23 * 3600 + 60), ends("a", 1, 1800, 2400), ends("a", 5, 60, 120)]
    schema = "purgatory STRING, hour BIGINT, first_us BIGINT, last_us BIGINT"
    hours = spark.createDataFrame([*rows, ends("b", 0, 0, 1)], schema)
    expected = [("a", 23, 3600.0, day + 23 * HOUR), ("a", 0, 2400.0 + 60.0, day + DAY), ("b", 0, 1.0, day)]
    schema = "purgatory STRING, hour INT, seconds DOUBLE, first_us BIGINT"
    assertDataFrameEqual(coverage(hours), spark.createDataFrame(expected, schema))


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=40))
def test_completions_equal_the_textbook(pairs: list[tuple[int, bool]]) -> None:
    ends = Counter(pairs)
    rows = [
        {"bucket": bucket, "end": ENDED if done else EXPIRED, "operations": float(n)}
        for (bucket, done), n in ends.items()
    ]
    survival, expected = 1.0, np.full(QUANTILES, np.nan)
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    for bucket in sorted({bucket for bucket, _ in pairs}):
        before = survival
        survival *= 1 - ends[bucket, True] / sum(n for (other, _), n in ends.items() if other >= bucket)
        expected[(places > 1 - before + 1e-9) & (places < 1 - survival - 1e-9)] = GROWTH**bucket / 1000
    found = np.array(completions(rows), float)
    known = ~np.isnan(expected)
    assert found[known] == pytest.approx(expected[known], rel=ERROR + 1e-3)
    assert np.isnan(found).sum() == pytest.approx(QUANTILES * survival, abs=1)


def test_completions_follow_weights_and_leave_triggers_that_were_missed_out() -> None:
    found = completions(
        [
            {"bucket": -1, "end": AT_ONCE, "operations": 250.0},
            {"bucket": 100, "end": ENDED, "operations": 500.0},
            {"bucket": 150, "end": LAST_TRY, "operations": 1e6},
            {"bucket": 200, "end": EXPIRED, "operations": 250.0},
        ]
    )
    assert found[:250] == (0.0,) * 250
    assert found[250:750] == pytest.approx([GROWTH**99.5 / 1000] * 500, rel=ERROR)
    assert found[750:] == (None,) * 250


def test_ranks_are_where_the_share_of_operations_is_reached() -> None:
    found = ranks([{"operations": 1.0, "keys": 100.0}, {"operations": 50.0, "keys": 2.0}])
    assert [found[n] for n in (0, 250, 500, 750, 1000)] == pytest.approx([0, 1, 2, 52, 102])


def made(spark: SparkSession, folder: Path, workload: Workload, count: int, keep_completed: float = 1.0) -> None:
    """Write the journal of an ideal purgatory for *count* operations; of the completed ones, a share."""
    table = trace(spark.range(count), [workload]).toArrow()
    done_us: Any = table["completion_us"].fill_null(1 << 60).to_numpy()
    timeout_us = table["timeout_us"].to_numpy()
    completed = done_us < timeout_us
    keys = table["keys"].to_pylist()
    kept = ~completed | (np.random.default_rng(9).random(count) < keep_completed)
    watched = table["arrival_us"].to_numpy() + workload.first_hour * HOUR + int(NIGHT.timestamp()) * SECOND
    columns: dict[str, Any] = {
        **{name: [value] * count for name, value in operation().items()},
        "purgatory": [workload.purgatory] * count,
        "kind": [workload.kind] * count,
        "key_count": [len(each) for each in keys],
        "key_hash": [each[0] * 7919 for each in keys],
        "watched_at": pa.array(watched, pa.timestamp("us", "UTC")),
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


def fitted(spark: SparkSession, folder: Path, rows: Sequence[dict[str, Any]] = ()) -> list[Workload]:
    """Write *rows* by the day of their beginning, ingest the journal, and fit."""
    days: set[date] = {row["watched_at"].date() for row in rows}
    for day in days:
        own = [row | {"sequence": number} for number, row in enumerate(rows) if row["watched_at"].date() == day]
        write(folder / "journal", own, f"{day}", at=own[0]["watched_at"])
    ingest(spark, str(folder / "journal"), str(folder / "out"))
    return fit(spark, str(folder / "out"))


@pytest.mark.parametrize("keep_completed", [1.0, 0.25])
def test_fit_recovers_the_model_and_honours_weights(spark: SparkSession, tmp_path: Path, keep_completed: float) -> None:
    made(spark, tmp_path, MADE, 100_000, keep_completed)
    (found,) = fitted(spark, tmp_path)
    assert (found.purgatory, found.kind, found.first_hour) == ("fetch", "Fetch", 11)
    assert found.completion_ms.count(0.0) == pytest.approx(300, abs=10)
    for place in (400, 650, 900, 990):
        assert found.completion_ms[place] == pytest.approx(MADE.completion_ms[place], rel=0.04)
    assert found.key_ranks[333] == pytest.approx(5, abs=0.3)
    assert found.key_ranks[667] == pytest.approx(100, rel=0.05)
    assert found.key_ranks[-1] == 500
    assert found.arrivals_per_second[11] == pytest.approx(20, rel=0.03)
    assert found.arrivals_per_second[12] == pytest.approx(60, rel=0.03)
    assert dict(found.timeouts_ms) == pytest.approx({100.0: 0.5, 30_000.0: 0.5}, rel=0.03)
    assert dict(found.key_counts) == pytest.approx({1: 0.25, 3: 0.75}, rel=0.03)
    assert found.operations == pytest.approx(100_000, rel=0.02)
    assert "NOT" not in " ".join(found.findings)
    path = tmp_path / "model.json"
    path.write_text(to_json([found]), encoding="utf-8")
    assert read_model(path) == [found]


def test_fit_says_what_it_found(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        operation(
            watched_at=NOON + timedelta(seconds=second),
            waited_us=100 if number % 2 else 4_000_000 + number,
            key_hash=0 if number % 2 else number + 100 * second,
        )
        for second in range(0, 600, 10)
        for number in range(100)
    ]
    rare = [expired(kind="rare", purgatory="rare", timeout_us=each, waited_us=5_000) for each in (5_000, None)]
    often, few = fitted(spark, tmp_path, rows + rare)
    text = " ".join(often.findings)
    assert "Time to completion: p50 3.92 s, p90 3.92 s, p99 3.92 s." in text
    assert "3,000 first keys. 50.0% of operations wait under the hottest." in text
    assert "23 of the 24 hours of the day were not seen" in text
    # A kind of which nothing completed, and with two rows.
    assert (set(few.completion_ms), few.key_ranks[-1], few.operations) == ({None}, 1, 2.0)
    assert few.timeouts_ms == ((5.0, 0.5), (None, 0.5))
    assert any("NOTHING ENDED" in finding for finding in few.findings)


def test_fit_days_without_a_journal_are_not_idle_silent_hours_are(spark: SparkSession, tmp_path: Path) -> None:
    hour = [operation(watched_at=NOON + timedelta(milliseconds=600 * n), waited_us=1_000 + n) for n in range(6_000)]
    later = [row | {"watched_at": row["watched_at"] + timedelta(days=100)} for row in hour]
    times = [NOON + timedelta(hours=hour, seconds=n) for hour in (0, 3) for n in range(600)]
    idle = [operation(purgatory="idle", outcome="cancelled", watched_at=at) for at in times]
    fetch, other = fitted(spark, tmp_path, hour + later + idle)
    assert fetch.arrivals_per_second[12] == pytest.approx(6_000 / 3_600, rel=0.01)
    assert "Extrapolated: 23 of the 24 hours of the day were not seen. They get the mean." in fetch.findings
    assert other.arrivals_per_second[12:15] == pytest.approx((1 / 6, 0.0, 0.0), rel=0.01)
    assert (other.completion_ms.count(0.0), other.expired) == (0, 0.0)


def test_fit_says_what_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path, replace(MADE, timeouts_ms=((300.0, 1.0),)), 20_000)
    (found,) = fitted(spark, tmp_path)
    said = re.search(r"Unknown: times over (\d+) ms, the longest that was seen\. In a", " ".join(found.findings))
    assert said is not None
    assert int(said[1]) == pytest.approx(300, rel=0.04)
    longer = sum(each > 300 for each in MADE.completion_ms if each is not None)
    assert found.completion_ms.count(None) == pytest.approx(longer, abs=20)


def test_fit_of_no_rows_is_no_model(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(waited_us=-1)])
    with pytest.raises(PurgatoryError, match=r"no operation has ended in .*: run it again later"):
        fitted(spark, tmp_path)


def test_instances_at_once_are_counted_by_their_lives(spark: SparkSession) -> None:
    hours = {"a": (0, 4), "b": (0, 2), "c": (2, 4)}  # c takes the place of b
    lives = [("p", name, NOON + timedelta(hours=n)) for name, span in hours.items() for n in span]
    frame = spark.createDataFrame([*lives, ("one", "x", NOON)], "purgatory STRING, instance STRING, at TIMESTAMP")
    assert {row.purgatory: row.instances for row in instances(frame).collect()} == {"p": 2.0, "one": 1.0}


def test_fit_says_how_many_triggers_were_missed(spark: SparkSession, tmp_path: Path) -> None:
    rows = [operation(waited_us=1_000 + n, missed_trigger=n % 2 == 0) for n in range(100)]
    (found,) = fitted(spark, tmp_path, rows)
    assert "50.0% are missed triggers. The model leaves out when they completed." in found.findings
