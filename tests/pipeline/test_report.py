"""The report: each table against plain Python that counts one by one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.cleaning.journal_tables import MINUTE, OPERATIONS, STATISTICS
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.minutes import minutes as m
from aiopurgatory.pipeline.minutes.percentiles import ERROR, PERCENTILES
from aiopurgatory.pipeline.report import changes, days, report

from .journals import NOON, expired, operation, snapshot, write

EASY = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SECOND = timedelta(seconds=1)


def frame(spark: SparkSession, rows: Sequence[dict[str, Any]], table: Any = OPERATIONS) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in table.raw.names) for row in rows], table.raw)


def test_activity_minute_is_that_of_the_end(spark: SparkSession) -> None:
    rows = [operation(0, watched_at=NOON, waited_us=MINUTE - 1), operation(1, watched_at=NOON, waited_us=MINUTE)]
    found = m.activity(frame(spark, rows)).select("minute").collect()
    assert sorted(row.minute.minute for row in found) == [0, 1]


def test_measured_weight_counts_in_everything(spark: SparkSession) -> None:
    rows = [
        operation(0, weight=8.0, waited_us=0),
        operation(1, weight=2.0, waited_us=1_000, missed_trigger=True),
        expired(2, weight=5.0),
        operation(3, outcome="cancelled", weight=1.0),
        operation(4, outcome="failed", weight=4.0),
    ]
    found = m.measured(m.activity(frame(spark, rows)), ["purgatory"]).collect()[0]
    assert (found.operations, found.completed, found.expired, found.cancelled, found.failed) == (20, 10, 5, 1, 4)
    assert (found.completed_share, found.expired_share) == (0.5, 0.25)
    assert found.missed_triggers == 2
    assert found.waited_p50_us == pytest.approx(1_000, rel=ERROR)  # 8 of 20 waited for nothing, 2 more for 1 ms
    assert found.lateness_max_us == pytest.approx(1_000, rel=ERROR)


def test_measured_nothing_expired_no_lateness(spark: SparkSession) -> None:
    found = m.measured(m.activity(frame(spark, [operation(0, waited_us=0)])), ["purgatory"]).collect()[0]
    assert (found.waited_p50_us, found.waited_p999_us) == (0, 0)
    assert found.lateness_p99_us is None


@EASY
@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 50)), min_size=1, max_size=60))
def test_percentiles_any_values_within_their_error(spark: SparkSession, values: list[tuple[int, int]]) -> None:
    rows = [operation(n, waited_us=waited, weight=float(weight)) for n, (waited, weight) in enumerate(values)]
    found = m.measured(m.activity(frame(spark, rows)), ["purgatory"]).collect()[0]
    every = sorted(value for value, weight in values for _ in range(weight))
    for name, share in PERCENTILES.items():
        exact = every[math.ceil(share * len(every) - 1e-9) - 1]
        assert found[f"waited_{name}_us"] == pytest.approx(exact, rel=ERROR * (1 + 1e-9))


spans = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 130), st.integers(1, 3)), min_size=1, max_size=25)


@EASY
@given(spans)
def test_pending_any_starts_and_ends_same_as_looking(spark: SparkSession, spans: list[tuple[int, int, int]]) -> None:
    rows = [
        operation(n, watched_at=NOON + start * SECOND, waited_us=length * 1_000_000, weight=float(weight))
        for n, (start, length, weight) in enumerate(spans)
    ]
    waiting: dict[int, list[int]] = defaultdict(lambda: [0] * 60)
    for start, length, weight in spans:
        for second in range(start, start + length):
            waiting[second // 60][second % 60] += weight
    found = {(row.minute - NOON.replace(tzinfo=None)): row for row in m.pending(frame(spark, rows)).collect()}
    looked = {timedelta(minutes=minute): each for minute, each in waiting.items()}
    for minute in found.keys() | looked.keys():
        each = looked.get(minute, [0])
        row = found.get(minute)
        assert (row.pending_peak if row else 0) == max(each)
        assert (row.pending_mean if row else 0) == pytest.approx(sum(each) / 60)


def test_pending_shorter_than_a_step_seen_with_a_finer_one(spark: SparkSession) -> None:
    rows = frame(spark, [operation(n, watched_at=NOON + timedelta(milliseconds=100 + n)) for n in range(3)])
    assert sum(row.pending_peak for row in m.pending(rows).collect()) == 0
    assert m.pending(rows, step=1_000).collect()[0].pending_peak == 3


def test_top_keys_ordered_by_weight_with_share(spark: SparkSession) -> None:
    rows = [operation(n, key_hash=1) for n in range(3)] + [operation(3, key_hash=2, weight=6.0, key_count=3)]
    rows += [operation(4, key_hash=3), operation(5, purgatory="produce", key_hash=3)]
    found = m.top_keys(frame(spark, rows), 2).select(
        "purgatory", "place", "key_hash", "operations", "share", "keys_each"
    )
    expected = [("fetch", 1, 2, 6.0, 0.6, 3.0), ("fetch", 2, 1, 3.0, 0.3, 1.0), ("produce", 1, 3, 1.0, 1.0, 1.0)]
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))


def test_hot_keys_name_and_fan_out(spark: SparkSession) -> None:
    wait = {"watched_at": NOON, "waited_us": MINUTE}
    rows = [operation(n, key_hash=1, key="k" * 1000 if n else None, **wait) for n in range(4)]
    rows += [operation(9, key_hash=2, waited_us=0)]
    table = frame(spark, rows)
    hot, cold = sorted(m.hot_keys(table, m.top_keys(table, 5)).collect(), key=lambda row: row.place)
    assert (hot.key, hot.fan_out_peak, hot.fan_out_mean) == ("k" * 200, 4, 4)
    assert (cold.key, cold.fan_out_peak, cold.fan_out_mean) == (None, 0, 0)


def test_work_counters_of_instances_become_what_was_done(spark: SparkSession) -> None:
    rows = [
        snapshot(NOON, purged=5),
        snapshot(NOON + 30 * SECOND, purged=9),
        snapshot(NOON + 90 * SECOND, purged=10),
        snapshot(NOON, instance="host-2", purged=100),
    ]
    found = m.work(frame(spark, rows, STATISTICS)).orderBy("minute").collect()
    assert [row.purged for row in found] == [109, 1]


def test_changes_against_the_day_before_and_new_and_gone(spark: SparkSession) -> None:
    two = {"waited_us": 10_000, "weight": 200.0}
    rows = [
        operation(0, **two),
        operation(1, watched_at=NOON + timedelta(days=1), **(two | {"weight": 300.0})),
        operation(2, kind="Gone", **two),
        operation(3, kind="New", watched_at=NOON + timedelta(days=1), **two),
        operation(4, kind="Rare", weight=99.0),
    ]
    table = frame(spark, rows)
    counts = m.activity(table)
    found = changes(days(counts, m.minutes(counts, m.pending(table)))).where("measure = 'operations'").collect()
    assert {(row.kind, row.before, row.now, row.date.day) for row in found} == {
        ("DelayedFetch", 200, 300, 22),
        ("Gone", 200, 0, 22),
        ("New", 0, 200, 22),
    }
    assert {row.kind: row.change for row in found} == {"DelayedFetch": pytest.approx(1 / 3), "Gone": -1, "New": 1}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_page_is_one_file_and_hostile_names_are_text(spark: SparkSession, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    rows = [operation(n, purgatory=evil, kind="$x^{$" + evil, key=evil) for n in range(9)]
    rows += [operation(20 + n, watched_at=NOON + timedelta(days=1), weight=1000.0) for n in range(2)]
    write(tmp_path / "journal", rows[:9])
    write(tmp_path / "journal", rows[9:], "next", at=NOON + timedelta(days=1))
    write(tmp_path / "journal", [snapshot(purgatory=evil)], table="statistics")
    clean, out = str(tmp_path / "clean"), tmp_path / "report"
    ingest(spark, str(tmp_path / "journal"), clean)
    report(spark, clean, str(out))
    page = _Page()
    page.feed((out / "report.html").read_text(encoding="utf-8"))
    assert page.tags["script"] == 0
    assert page.tags["img"] == 6
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert evil in page.text
    assert "2,009 operations" in page.text
    again = (out / "report.html").read_text(encoding="utf-8")
    report(spark, clean, str(out))
    assert (out / "report.html").read_text(encoding="utf-8") == again
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {
        *("minutes", "days", "changes", "hot_keys", "work", "report.html")
    }


def test_report_no_rows_in_these_days_says_so(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "clean"))
    report(spark, str(tmp_path / "clean"), str(tmp_path / "out"), first=(NOON + timedelta(days=5)).date())
    assert "Nothing ended in these days" in (tmp_path / "out" / "report.html").read_text()


def test_report_nothing_ingested_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"no clean table in .*: aiopurgatory pipeline ingest makes it"):
        report(spark, str(tmp_path), str(tmp_path / "out"))


def test_report_of_one_day_compares_and_knows_what_waited_at_midnight(spark: SparkSession, tmp_path: Path) -> None:
    day, journal, clean, out = timedelta(days=1), tmp_path / "journal", tmp_path / "clean", tmp_path / "out"
    late = NOON.replace(hour=23, minute=59, second=30)
    overnight = {"waited_us": 60_000_000, "timeout_us": 90_000_000}
    write(journal, [operation(n) for n in range(100)])
    write(journal, [operation(100 + n, watched_at=NOON + day) for n in range(200)], "1", at=NOON + day)
    write(journal, [operation(300 + n, watched_at=late, **overnight) for n in range(3)], "2", at=NOON + day)
    write(journal, [operation(400, watched_at=late + day, **overnight)], "3", at=NOON + 2 * day)
    counts = [(NOON, 1000), (NOON + day, 1007), (NOON + day + 60 * SECOND, 3)]  # the last one was opened anew
    for name, (at, purged) in enumerate(counts):
        write(journal, [snapshot(at, purged=purged)], str(name), table="statistics", at=at)
    ingest(spark, str(journal), str(clean))
    report(spark, str(clean), str(out), first=(NOON + day).date(), last=(NOON + day).date())

    def table(name: str) -> DataFrame:
        return spark.read.parquet(str(out / name))

    changed = table("changes").where("measure = 'operations'").collect()
    assert [(row.date, row.before, row.now) for row in changed] == [((NOON + day).date(), 100.0, 203.0)]
    minutes = {row.minute.strftime("%d %H:%M"): row.pending_peak for row in table("minutes").collect()}
    assert minutes == {"22 00:00": 3.0, "22 12:00": 200.0, "22 23:59": 1.0}
    assert [row.date for row in table("days").collect()] == [(NOON + day).date()]
    assert [row.purged for row in table("work").orderBy("minute").collect()] == [7, 3]
