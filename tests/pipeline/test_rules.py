"""Each rule breaks on its own row, and on no good one."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.pipeline.rules import good, quarantined, rules, with_reason
from aiopurgatory.pipeline.tables import JOURNAL, OUTCOMES, columns

from .journals import NOON, expired, operation, snapshot

DAY = timedelta(days=1)
IMPOSSIBLE: dict[str, list[dict[str, Any]]] = {
    "schema_version is unknown": [{"schema_version": 2}],
    "schema_version is null": [{"schema_version": None}],
    "instance is null": [{"instance": None}],
    "purgatory is not of 1 to 255 bytes": [{"purgatory": ""}, {"purgatory": "é" * 128}],
    "outcome is unknown": [{"outcome": "vanished"}],
    "sequence is negative": [{"sequence": -1}],
    "key_count is not positive": [{"key_count": 0}],
    "waited_us is not from 0 to a year": [{"waited_us": -1}, {"waited_us": 2**63 - 1}],
    "timeout_us is negative": [{"timeout_us": -1}],
    "lateness_us is not from 0 to a year": [
        *({"outcome": "expired", "lateness_us": lateness} for lateness in (-1, 2**63 - 1)),
    ],
    "lateness_us without expiring, or the reverse": [{"lateness_us": 1}, {"outcome": "expired"}],
    "missed_trigger without completing": [{"missed_trigger": True, "outcome": "failed"}],
    "weight is not from 1 to 1e9": [{"weight": 0.9}, {"weight": math.nan}, {"weight": math.inf}],
    "time not of its file's day": [
        *({"watched_at": NOON + days * DAY} for days in (-2, 2)),
        *({"date": date} for date in ("garbage", "", "2026-13-01")),
    ],
    "time later than its file was written": [{"modified": NOON - 2 * DAY}],
}
POSSIBLE: list[dict[str, Any]] = [
    *({"outcome": outcome} for outcome in OUTCOMES if outcome != "expired"),
    {"waited_us": 0, "timeout_us": 0},
    {"timeout_us": None},
    {"timeout_us": 2**63 - 1, "key_hash": -(2**63), "sequence": 2**63 - 1},
    {"weight": 1e9, "key": "x" * 10_000, "purgatory": "é" * 127},
    {"watched_at": NOON + DAY, "missed_trigger": True},
    {"modified": NOON.replace(year=1970)},
    {"modified": None},
]


def of_file(row: dict[str, Any]) -> dict[str, Any]:
    return {"date": "2026-11-21", "hour": "12", "modified": NOON + DAY} | row


def frame(spark: SparkSession, rows: list[dict[str, Any]], table: str = "operations") -> DataFrame:
    schema = f"{JOURNAL[table]}, modified TIMESTAMP"
    return spark.createDataFrame([tuple(of_file(row).get(name) for name in columns(schema)) for row in rows], schema)


def test_with_reason_impossible_rows_have_the_reason(spark: SparkSession) -> None:
    pairs = [(reason, change) for reason, changes in IMPOSSIBLE.items() for change in changes]
    rows = frame(spark, [operation(n) | change | {"key_hash": n} for n, (_, change) in enumerate(pairs)])
    found = with_reason(rows, "operations").select("key_hash", "reason")
    assertDataFrameEqual(found, [Row(key_hash=n, reason=reason) for n, (reason, _) in enumerate(pairs)])


def test_with_reason_possible_rows_have_no_reason(spark: SparkSession) -> None:
    rows = frame(spark, [operation(n) | change for n, change in enumerate(POSSIBLE)] + [expired(99)])
    assert {row.reason for row in with_reason(rows, "operations").collect()} == {None}


def test_good_and_quarantined_divide_all_rows(spark: SparkSession) -> None:
    bad = [change for changes in IMPOSSIBLE.values() for change in changes]
    rows = frame(spark, [operation(n) | change for n, change in enumerate([*bad, *POSSIBLE])])
    assert good(rows, "operations").count() == len(POSSIBLE)
    assert quarantined(rows, "operations").count() == len(bad)


def test_rules_cover_all_columns_that_are_never_null(spark: SparkSession) -> None:
    assert {"outcome is null", "weight is null", "watched_at is null"} <= rules("operations").keys()
    assert {"at is null", "checks is null", "dropped_rows is not from 0 to 1e15"} <= rules("statistics").keys()


@pytest.mark.parametrize("change", [{"checks": -1}, {"checks": 2**63 - 1}, {"at": NOON - 3 * DAY}, {"instance": None}])
def test_good_impossible_snapshot_is_dropped(spark: SparkSession, change: dict[str, Any]) -> None:
    rows = frame(spark, [snapshot(), snapshot() | change], "statistics")
    assert good(rows, "statistics").count() == 1
