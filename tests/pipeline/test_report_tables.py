"""The tables of the report, of literal rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import desc
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.pipeline import report_tables as tables
from aiopurgatory.pipeline import sums
from aiopurgatory.pipeline.tables import ERROR, JOURNAL, REPORT, SUMS, columns

from .journals import NOON, expired, operation, snapshot

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


class Sums:
    """The sums of literal operations."""

    def __init__(self, spark: SparkSession, rows: list[dict[str, Any]]) -> None:
        schema = JOURNAL["operations"]
        known = {"date": "", "hour": ""}
        frame = spark.createDataFrame([tuple((known | row)[name] for name in columns(schema)) for row in rows], schema)
        self.of = {name: make(frame) for name, make in sums.OF_ROWS.items()} | {"activity": sums.activity(frame)}

    def minutes(self) -> DataFrame:
        hours = self.of["hours"]
        return tables.minutes(self.of["activity"], self.of["waiting"], sums.kinds(hours), tables.spans(hours))

    def days(self) -> DataFrame:
        hours = self.of["hours"]
        daily = sums.daily(self.of["activity"])
        return tables.days(daily, self.minutes(), sums.kinds(hours), tables.spans(hours))


def snapshots(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    names = columns(SUMS["snapshots"])
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], SUMS["snapshots"])


def test_minutes_counts_shares_and_percentiles(spark: SparkSession) -> None:
    rows = [operation(n, waited_us=(n + 1) * 1_000) for n in range(98)]
    rows += [expired(98, lateness_us=2_000), operation(99, missed_trigger=True, weight=2.0, waited_us=0)]
    (found,) = Sums(spark, rows).minutes().collect()
    assert (found.date, found.purgatory, found.kind, found.minute) == (
        NOON.date(),
        "fetch",
        "DelayedFetch",
        NOON.astimezone().replace(tzinfo=None),
    )
    assert (found.operations, found.completed, found.expired, found.cancelled) == (101.0, 100.0, 1.0, 0.0)
    assert (found.missed_triggers, found.expired_share) == (2.0, pytest.approx(1 / 101))
    assert found.waited_p50_us == pytest.approx(49_000, rel=ERROR)
    assert found.waited_p99_us == pytest.approx(98_000, rel=ERROR)
    assert found.waited_p999_us == pytest.approx(501_000, rel=ERROR)
    assert found.lateness_p50_us == found.lateness_max_us == pytest.approx(2_000, rel=ERROR)


def test_minutes_waiting_over_minutes_mean_and_peak(spark: SparkSession) -> None:
    rows = [
        operation(0, watched_at=NOON + 30 * SECOND, waited_us=120_000_000, weight=2.0),
        operation(1, watched_at=NOON + 40 * SECOND, waited_us=10_000_000),
        operation(2, watched_at=NOON, waited_us=0),
        operation(3, watched_at=NOON + 10 * MINUTE, waited_us=0),
    ]
    found = Sums(spark, rows).minutes().orderBy("minute").collect()
    assert [(row.operations, row.pending_peak, row.pending_mean) for row in found] == [
        (2.0, 3.0, pytest.approx((30 * 2 + 10) / 60)),
        (0.0, 2.0, 2.0),
        (2.0, 2.0, pytest.approx(1.0)),
        (1.0, 0.0, 0.0),
    ]
    assert found[1].waited_p50_us is None


def test_minutes_covered_from_first_end_to_last(spark: SparkSession) -> None:
    rows = [operation(n, watched_at=NOON + at * SECOND, waited_us=0) for n, at in enumerate((45, 60, 130))]
    found = Sums(spark, rows).minutes().orderBy("minute").collect()
    assert [row.covered_s for row in found] == [15.0, 60.0, 10.0]


def test_minutes_mean_is_over_the_seconds_covered(spark: SparkSession) -> None:
    waits = operation(0, watched_at=NOON + 40 * SECOND, waited_us=10_000_000)
    rows = [operation(1, watched_at=NOON + 30 * SECOND, waited_us=0), waits]
    (found,) = Sums(spark, rows).minutes().collect()
    assert (found.covered_s, found.pending_mean) == (20.0, 0.5)


def test_days_beside_each_other_are_covered_up_to_midnight(spark: SparkSession) -> None:
    rows = [operation(n, watched_at=NOON + n * DAY, waited_us=0) for n in range(3)]
    found = Sums(spark, rows).days().orderBy("date").collect()
    assert [(row.date.day, row.covered_s) for row in found] == [(21, 43_200.0), (22, 86_400.0), (23, 43_200.0)]


def test_days_pending_of_an_operation_over_midnight(spark: SparkSession) -> None:
    long = operation(0, watched_at=NOON, waited_us=86_400_000_000, weight=4.0)
    found = Sums(spark, [operation(1), long]).days().orderBy("date").collect()
    assert [(row.date.day, row.operations, row.pending_peak) for row in found] == [(21, 1.0, 4.0), (22, 4.0, 4.0)]


def test_seconds_of_a_short_journal(spark: SparkSession) -> None:
    of = Sums(spark, [operation(0, waited_us=2_500_000), expired(1, watched_at=NOON, waited_us=500_000)]).of
    found = tables.seconds(of["waiting"], of["ends"], sums.kinds(of["hours"])).orderBy("second")
    rows = [(row.second.second, row.completed, row.expired, row.pending) for row in found.collect()]
    assert rows == [(0, 0.0, 1.0, 2.0), (1, 0.0, 0.0, 1.0), (2, 1.0, 0.0, 1.0)]
    assert found.columns == [each.split()[0] for each in REPORT["seconds"].split(", ")]


def test_changes_between_consecutive_days_alone(spark: SparkSession) -> None:
    names = [each.split()[0] for each in REPORT["days"].split(", ")]

    def day(number: int, operations: float, share: float) -> tuple[Any, ...]:
        known = {"date": date(2026, 11, number), "purgatory": "fetch", "kind": "a", "operations": operations}
        return tuple({**dict.fromkeys(names, 0.0), **known, "expired_share": share}[name] for name in names)

    frame = spark.createDataFrame([day(20, 200.0, 0.1), day(21, 400.0, 0.1), day(24, 400.0, 0.5)], REPORT["days"])
    found = tables.changes(frame).where("change <> 0 OR measure = 'expired_share'").orderBy(desc("change")).collect()
    assert [(row.date.day, row.measure, row.before, row.now, row.change) for row in found] == [
        (21, "operations", 200.0, 400.0, 0.5),
        (21, "expired_share", 0.1, 0.1, 0.0),
    ]


def test_hot_keys_the_hottest_with_its_name(spark: SparkSession) -> None:
    keys = spark.createDataFrame([("p", 1, 3.0, 6.0), ("p", 2, 5.0, 5.0), ("p", 1, 1.0, 2.0)], SUMS["keys"])
    names = spark.createDataFrame([("p", 1, "one"), ("p", 1, "other")], SUMS["names"])
    wanted = [
        Row(purgatory="p", place=1, key_hash=2, key=None, operations=5.0, share=5 / 9, keys_each=1.0),
        Row(purgatory="p", place=2, key_hash=1, key="one", operations=4.0, share=4 / 9, keys_each=2.0),
    ]
    assertDataFrameEqual(tables.hot_keys(keys, names), wanted)
    assert tables.hot_keys(keys, names, top=1).count() == 1


def test_work_growth_since_the_snapshot_before(spark: SparkSession) -> None:
    rows = [
        snapshot(NOON, checks=100),
        snapshot(NOON + 30 * SECOND, checks=130),
        snapshot(NOON + 30 * SECOND, checks=130),  # a copy
        snapshot(NOON + 90 * SECOND, checks=7),  # reset
        snapshot(NOON + 90 * SECOND, checks=50, instance="host-2"),
    ]
    found = tables.work(snapshots(spark, rows)).select("checks").collect()
    assert sorted(row.checks for row in found) == [7, 30]


def test_work_rows_dropped_by_an_instance_count_once(spark: SparkSession) -> None:
    rows = [
        snapshot(NOON + n * SECOND, purgatory=name, dropped_rows=n // 2 * 5)
        for n, name in enumerate(("a", "b", "a", "b"))
    ]
    found = tables.work(snapshots(spark, rows)).orderBy("purgatory").collect()
    assert [(row.purgatory, row.dropped_rows) for row in found] == [("a", 5), ("b", 0)]


def test_timeouts_expired_operations_expire_with_shorter_ones(spark: SparkSession) -> None:
    """Half ask with a timeout of 0, and find nothing. The others have their answer long before 500 ms."""
    asks = [expired(n, timeout_us=0, waited_us=n % 2, lateness_us=n % 2) for n in range(100)]
    own = Sums(spark, [*asks, *(operation(100 + n) for n in range(99))])
    daily = sums.daily(own.of["activity"])
    found = tables.timeouts(daily, own.of["hours"], sums.kinds(own.of["hours"])).collect()
    assert [(row.timeout_us, row.is_in_use) for row in found][:2] == [(500e3, True), (250e3, False)]
    shares = {row.timeout_us: row.expired_share for row in found}
    assert shares == {each: 1.0 if each < 20e3 else pytest.approx(100 / 199) for each in shares}


def test_timeouts_of_operations_that_never_wait_are_none(spark: SparkSession) -> None:
    own = Sums(spark, [expired(n, timeout_us=0, waited_us=n, lateness_us=n) for n in range(3)])
    kinds = sums.kinds(own.of["hours"])
    assert tables.timeouts(sums.daily(own.of["activity"]), own.of["hours"], kinds).collect() == []


def test_lost_rows_by_reason(spark: SparkSession) -> None:
    losses = [(NOON.date(), "outcome is unknown", 2), (NOON.date(), "outcome is unknown", 1)]
    found = tables.lost(spark.createDataFrame(losses, SUMS["losses"]))
    assertDataFrameEqual(found, [Row(date=NOON.date(), what="outcome is unknown", rows=3)])


def test_settings_of_the_newest_snapshots(spark: SparkSession) -> None:
    in_use = {"tick_ns": 1_000_000, "wheel_size": 64, "purge_interval": 0}
    rows = [
        snapshot(NOON, **(in_use | {"tick_ns": 5})),
        snapshot(NOON + SECOND, **in_use),
        snapshot(NOON, instance="host-2", **in_use),
        snapshot(NOON, instance="old", tick_ns=None),
    ]
    wanted = [Row(purgatory="fetch", instances=2, tick_s=0.001, wheel_size=64, purge_interval=0)]
    assertDataFrameEqual(tables.settings(snapshots(spark, rows)), wanted)


def test_missed_sums_the_newest_snapshots_by_kind_of_key(spark: SparkSession) -> None:
    def missed(*kinds: tuple[str | None, str | None, int]) -> dict[str, Any]:
        return {"missed_kinds": [dict(zip(("kind", "key", "operations"), each, strict=True)) for each in kinds]}

    rows = [
        snapshot(NOON, **missed(("Order", "int", 1))),
        snapshot(NOON + SECOND, **missed(("Order", "int", 3), ("Fetch", "str", 2))),
        snapshot(NOON, instance="host-2", **missed(("Order", "int", 4), (None, "str", 9), ("Fetch", None, 9))),
        snapshot(NOON, instance="idle", **missed()),
        snapshot(NOON, instance="old", missed_kinds=None),
    ]
    wanted = [
        Row(purgatory="fetch", kind="Fetch", key_kind="str", operations=2),
        Row(purgatory="fetch", kind="Order", key_kind="int", operations=7),
    ]
    assertDataFrameEqual(tables.missed(snapshots(spark, rows)), wanted)


def test_instants_are_in_utc(spark: SparkSession) -> None:
    (row,) = Sums(spark, [operation(0)]).minutes().selectExpr("unix_seconds(minute) AS at").collect()
    assert datetime.fromtimestamp(row.at, UTC) == NOON
