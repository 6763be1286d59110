"""Sums of literal rows. The sums of two groups of rows add up to the sums of both."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.pipeline import sums
from aiopurgatory.pipeline.tables import GROWTH, JOURNAL, OUTCOMES, columns

from .journals import NOON, expired, operation

COMPLETED, EXPIRED = OUTCOMES.index("completed"), OUTCOMES.index("expired")
SECOND = timedelta(seconds=1)
MIDNIGHT = NOON.replace(hour=0) + timedelta(days=1)
NOON_S, MIDNIGHT_S = int(NOON.timestamp()), int(MIDNIGHT.timestamp())


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    schema = JOURNAL["operations"]
    known = {"date": "2026-11-21", "hour": "12"}
    return spark.createDataFrame([tuple((known | row)[name] for name in columns(schema)) for row in rows], schema)


def test_activity_histogram_by_minute(spark: SparkSession) -> None:
    rows = [
        operation(0, waited_us=0),
        operation(1, waited_us=1_000, weight=2.0),
        operation(2, waited_us=1_001, weight=3.0),
        expired(3, watched_at=NOON + 60 * SECOND),
        operation(4, missed_trigger=True, waited_us=1_000),
    ]
    minute, bucket = NOON_S // 60, math.ceil(math.log(1_000) / math.log(GROWTH))
    late, waited = (math.ceil(math.log(us) / math.log(GROWTH)) for us in (1_000, 501_000))
    columns = ("minute", "outcome", "missed_trigger", "waited", "lateness", "operations", "rows")
    expected = [
        (minute, COMPLETED, False, -1, None, 1.0, 1),
        (minute, COMPLETED, False, bucket, None, 5.0, 2),
        (minute, COMPLETED, True, bucket, None, 1.0, 1),
        (minute + 1, EXPIRED, False, waited, late, 1.0, 1),
    ]
    found = sums.activity(frame(spark, rows)).select(*columns)
    assertDataFrameEqual(found, [Row(**dict(zip(columns, row, strict=True))) for row in expected])


def test_daily_is_the_activity_of_a_day(spark: SparkSession) -> None:
    later = operation(1, weight=4.0, watched_at=NOON + timedelta(hours=11, minutes=59))
    rows = [operation(0, weight=2.0), later, operation(2, watched_at=NOON + timedelta(hours=12))]
    found = sums.daily(sums.activity(frame(spark, rows))).orderBy("date").collect()
    assert [(str(row.date), row.operations) for row in found] == [("2026-11-21", 6.0), ("2026-11-22", 1.0)]


def test_hours_timeouts_and_ends(spark: SparkSession) -> None:
    rows = [operation(0), operation(1, weight=2.0), operation(2, timeout_us=None, key_count=99)]
    found = sums.hours(frame(spark, rows)).orderBy("key_count").collect()
    end = NOON_S * 1_000_000 + 20_000
    assert [(row.kind, row.key_count, row.operations, row.total) for row in found] == [
        ("DelayedFetch", 1, 3.0, 1_500_000.0),
        ("DelayedFetch", 64, 1.0, None),
    ]
    assert [(row.hour, row.first_us, row.last_us) for row in found] == [
        (NOON_S // 3600, end, end + 1_000),
        (NOON_S // 3600, end + 2_000, end + 2_000),
    ]
    assert found[0].timeout == math.floor(math.log(500_001) * 64)
    assert found[1].timeout is None


def test_waiting_seen_by_whole_seconds_only(spark: SparkSession) -> None:
    half = timedelta(milliseconds=500)
    rows = [
        operation(0, watched_at=NOON + half, waited_us=400_000),  # between two seconds
        operation(1, watched_at=NOON + half, waited_us=600_000, weight=3.0),
        operation(2, watched_at=NOON, waited_us=1_000_000),  # ends as a second begins
    ]
    found = sums.waiting(frame(spark, rows)).select("second", "change")
    wanted = {NOON_S: 1.0, NOON_S + 1: 2.0, NOON_S + 2: -3.0}
    assertDataFrameEqual(found, [Row(second=second, change=change) for second, change in wanted.items()])


def test_waiting_over_midnight_each_date_sums_to_nothing(spark: SparkSession) -> None:
    long = operation(0, watched_at=MIDNIGHT - 2 * SECOND, waited_us=90_000_000_000, weight=2.0)
    found = sums.waiting(frame(spark, [long])).select(F.col("date").cast("string"), "second", "change")
    day = 86_400
    expected = [
        ("2026-11-21", MIDNIGHT_S - 2, 2.0),
        ("2026-11-21", MIDNIGHT_S, -2.0),
        ("2026-11-22", MIDNIGHT_S, 2.0),
        ("2026-11-22", MIDNIGHT_S + day, -2.0),
        ("2026-11-23", MIDNIGHT_S + day, 2.0),
        ("2026-11-23", MIDNIGHT_S + 90_000 - 2, -2.0),
    ]
    assertDataFrameEqual(found, [Row(date=date, second=second, change=change) for date, second, change in expected])


def test_keys_and_names(spark: SparkSession) -> None:
    rows = frame(
        spark, [operation(0, key="b", key_count=3), operation(1, key="a", weight=2.0), operation(2, key_hash=8)]
    )
    wanted = [Row(key_hash=7, operations=3.0, watched=5.0), Row(key_hash=8, operations=1.0, watched=1.0)]
    assertDataFrameEqual(sums.keys(rows).drop("purgatory"), wanted)
    assertDataFrameEqual(sums.names(rows), [Row(purgatory="fetch", key_hash=7, key="a")])


def test_words_bits_and_copies(spark: SparkSession) -> None:
    rows = frame(spark, [operation(n) for n in (0, 3, 3, 63, 64)])
    wanted = [(0, 1 | 8 | (1 << 63) - (1 << 64), 4), (1, 1, 1)]
    found = sums.words(rows).select("word", "bits", "rows")
    assertDataFrameEqual(found, [Row(word=word, bits=bits, rows=count) for word, bits, count in wanted])


@pytest.mark.parametrize("name", sums.OF_ROWS)
def test_sums_of_two_groups_add_up_to_those_of_both(spark: SparkSession, name: str) -> None:
    of = sums.OF_ROWS[name]
    one = frame(spark, [operation(n, waited_us=1_500_000, key=f"{n % 2}") for n in range(4)])
    other = frame(spark, [operation(n, waited_us=1_500_000, key=f"{n}") for n in range(3)] + [expired(9)])
    assertDataFrameEqual(sums.total(of(one).union(of(other))), sums.total(of(one.union(other))))


def test_named_replaces_the_number_of_a_series(spark: SparkSession) -> None:
    rows = frame(spark, [operation(0), operation(1, kind="Other", weight=5.0)])
    found = sums.named(sums.ends(rows).select("series", "operations"), sums.kinds(sums.hours(rows)))
    wanted = [("DelayedFetch", 1.0), ("Other", 5.0)]
    assertDataFrameEqual(found, [Row(purgatory="fetch", kind=kind, operations=count) for kind, count in wanted])
