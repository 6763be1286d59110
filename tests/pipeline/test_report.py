"""The report: its tables from a real journal, for the days asked for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline import report as report_module
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.report import report, write_page
from aiopurgatory.pipeline.spark.tasks import Spark

from .journals import NOON, expired, operation, snapshot, write

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def reported(spark: Spark, folder: Path, **options: Any) -> None:
    ingest(spark, str(folder / "journal"), str(folder / "clean"), max_torn=1.0)
    report(spark, str(folder / "clean"), str(folder / "out"), **options)


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted((folder / "out" / name).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pylist()  # type: ignore[no-any-return]


def test_report_hot_keys_by_weight_with_share_and_name(spark: Spark, tmp_path: Path) -> None:
    wait = {"watched_at": NOON, "waited_us": 60_000_000}
    rows = [operation(n, key_hash=1, key="k" * 1000 if n else None, **wait) for n in range(3)]
    rows += [operation(3, key_hash=2, weight=6.0, key_count=3, waited_us=0), operation(4, key_hash=3)]
    rows += [operation(5, purgatory="produce", key_hash=1, **wait)]
    write(tmp_path / "journal", rows)
    reported(spark, tmp_path, top=2)
    found = [tuple(row.values()) for row in table(tmp_path, "hot_keys")]
    assert found == [
        ("fetch", 1, 2, None, 6.0, 0.6, 3.0),
        ("fetch", 2, 1, "k" * 200, 3.0, 0.3, 1.0),
        ("produce", 1, 1, None, 1.0, 1.0, 1.0),
    ]


def test_report_many_keys_in_shares_the_same(spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [operation(n, key_hash=n * n % 50 - 20, purgatory=f"p{n % 2}") for n in range(300)]
    write(tmp_path / "journal", rows)
    reported(spark, tmp_path, top=5)
    whole = table(tmp_path, "hot_keys")
    monkeypatch.setattr("aiopurgatory.pipeline.minutes.hot_keys._KEYS_PER_TASK", 10)
    reported(spark, tmp_path, top=5)
    assert table(tmp_path, "hot_keys") == whole
    assert len(whole) == 10


def test_report_work_counters_of_instances_become_what_was_done(spark: Spark, tmp_path: Path) -> None:
    rows = [
        snapshot(NOON, purged=5_000),  # since a week ago: not of this minute
        snapshot(NOON + 30 * SECOND, purged=5_009),
        snapshot(NOON + 90 * SECOND, purged=5_010),
        snapshot(NOON + 100 * SECOND, purged=4),  # opened anew
        snapshot(NOON, instance="host-2", purged=0),
        snapshot(NOON + 50 * SECOND, instance="host-2", purged=100),
    ]
    write(tmp_path / "journal", [operation(0)])
    write(tmp_path / "journal", rows, table="statistics")
    reported(spark, tmp_path)
    assert [row["purged"] for row in table(tmp_path, "work")] == [109, 5]


def test_report_dropped_rows_of_an_instance_counted_once(spark: Spark, tmp_path: Path) -> None:
    rows = [
        snapshot(NOON + seconds * SECOND, purgatory=name, dropped_rows=dropped)
        for seconds, dropped in ((0, 40), (30, 140), (61, 141))
        for name in ("fetch", "produce", "join")
    ]
    write(tmp_path / "journal", [operation(0), operation(1, waited_us=-1)])
    write(tmp_path / "journal", [operation(2)], "torn").write_bytes(b"no parquet")
    write(tmp_path / "journal", rows, table="statistics")
    reported(spark, tmp_path)
    found = [(row["what"], row["minute"] and row["minute"].minute, row["rows"]) for row in table(tmp_path, "lost")]
    assert found == [
        ("dropped", 0, 100),
        ("dropped", 1, 1),
        ("torn files", None, 1),
        ("waited_us is negative", None, 1),
    ]


def test_report_settings_in_use_are_those_of_the_last_snapshots(spark: Spark, tmp_path: Path) -> None:
    fine = {"tick_ns": 1_000_000, "wheel_size": 20}
    rows = [
        snapshot(NOON, tick_ns=None, wheel_size=None),
        snapshot(NOON + SECOND, **fine),
        snapshot(NOON, instance="host-2", **fine),
        snapshot(NOON, instance="host-3", tick_ns=10_000_000, wheel_size=64),
        snapshot(NOON, instance="host-4", tick_ns=None),
    ]
    write(tmp_path / "journal", [operation(0)])
    write(tmp_path / "journal", rows, table="statistics")
    reported(spark, tmp_path)
    found = [(row["instances"], row["tick_s"], row["wheel_size"]) for row in table(tmp_path, "settings")]
    assert found == [(1, 0.01, 64), (2, 0.001, 20)]


def test_report_short_range_by_the_second_too(spark: Spark, tmp_path: Path) -> None:
    rows = [operation(n, watched_at=NOON + n * SECOND, waited_us=1_500_000) for n in range(90)]
    write(tmp_path / "journal", [*rows, expired(90, watched_at=NOON)])
    reported(spark, tmp_path)
    seconds = table(tmp_path, "seconds")
    assert len(seconds) == 91
    assert {(row["completed"], row["pending"]) for row in seconds[2:-2]} == {(1, 2)}
    write(tmp_path / "journal", [operation(200, watched_at=NOON + 2 * 3600 * SECOND)], "later")
    reported(spark, tmp_path)
    assert not list((tmp_path / "out" / "seconds").glob("*.parquet"))


def test_report_again_the_same_and_nothing_is_left(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(9)])
    write(tmp_path / "journal", [operation(n, watched_at=NOON + DAY) for n in range(9, 12)], "next", at=NOON + DAY)
    write(tmp_path / "journal", [snapshot()], table="statistics")
    reported(spark, tmp_path)
    out = tmp_path / "out"
    write_page(str(out))
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*.*") if path.is_file()}
    reported(spark, tmp_path)
    write_page(str(out))
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*.*") if path.is_file()} == before
    reported(spark, tmp_path, first=(NOON + DAY).date())
    assert [row["date"] for row in table(tmp_path, "minutes")] == [(NOON + DAY).date()]


def test_report_no_rows_in_these_days_says_so(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "clean"))
    report(spark, str(tmp_path / "clean"), str(tmp_path / "out"), first=(NOON + timedelta(days=5)).date())
    write_page(str(tmp_path / "out"))
    assert "No operation ended on these days" in (tmp_path / "out" / "report.html").read_text()


def test_report_days_in_the_wrong_order_refused(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    reported(spark, tmp_path, first=NOON.date(), last=NOON.date())
    with pytest.raises(PurgatoryError, match="first must not be after last, got 2026-11-22 and 2026-11-21"):
        reported(spark, tmp_path, first=(NOON + DAY).date(), last=NOON.date())


def test_report_tables_are_folders_of_parquet_files_alone(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    reported(spark, tmp_path)
    folders = [each for each in (tmp_path / "out").iterdir() if each.is_dir()]
    assert {each.name for each in folders} >= {"minutes", "days", "changes", "hot_keys", "work", "lost", "settings"}
    for folder in folders:
        pq.read_table(folder, partitioning=None)


def test_report_nothing_ingested_refused(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"no clean table in .*: run aiopurgatory pipeline ingest"):
        report(spark, str(tmp_path), str(tmp_path / "out"))


def test_report_one_day_compares_and_counts_waits_over_midnight(spark: Spark, tmp_path: Path) -> None:
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
    changed = [row for row in table(tmp_path, "changes") if row["measure"] == "operations"]
    assert [(row["date"], row["before"], row["now"]) for row in changed] == [((NOON + day).date(), 100.0, 203.0)]
    minutes = {f"{row['minute']:%d %H:%M}": row["pending_peak"] for row in table(tmp_path, "minutes")}
    assert minutes == {"22 00:00": 3.0, "22 12:00": 200.0, "22 23:59": 1.0}
    assert [row["date"] for row in table(tmp_path, "days")] == [(NOON + day).date()]
    assert [row["purged"] for row in table(tmp_path, "work")] == [7, 3]


def test_report_again_only_days_with_other_sums_are_made(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days, journal = [NOON + number * DAY for number in range(6)], tmp_path / "journal"
    for number, day in enumerate(days):
        write(journal, [operation(number, watched_at=day)], f"f-{number}", at=day)
    made = list[date]()
    one = report_module._report_day

    def seen(task: Any, *rest: Any) -> pa.Table:
        made.append(task.day)
        return one(task, *rest)

    monkeypatch.setattr(report_module, "_report_day", seen)
    reported(spark, tmp_path)
    assert len(made) == 6
    made.clear()
    reported(spark, tmp_path)
    assert made == []
    write(journal, [operation(9, watched_at=days[2])], "late", at=days[2])
    reported(spark, tmp_path)
    assert made == [day.date() for day in days[1:4]]
    assert [row["operations"] for row in table(tmp_path, "days")] == [1, 1, 2, 1, 1, 1]
    again = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.parquet")}
    report(spark, str(tmp_path / "clean"), str(tmp_path / "new"))
    for path, content in again.items():
        assert (tmp_path / "new" / path.relative_to(tmp_path / "out")).read_bytes() == content


def test_report_as_of_a_time_is_of_the_version_then(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    before = datetime.now(UTC)
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "clean"))
    between = datetime.now(UTC)
    write(tmp_path / "journal", [operation(1)], "late")
    reported(spark, tmp_path)
    assert [row["operations"] for row in table(tmp_path, "days")] == [2]
    reported(spark, tmp_path, as_of=between.replace(tzinfo=None))
    assert [row["operations"] for row in table(tmp_path, "days")] == [1]
    with pytest.raises(PurgatoryError, match=r"no version of .* is kept, the oldest is from .*--keep-hours"):
        reported(spark, tmp_path, as_of=before)


@pytest.mark.parametrize("year", [2262, 9000])
def test_report_of_a_year_that_pandas_cannot_count_is_of_the_others(spark: Spark, tmp_path: Path, year: int) -> None:
    far = NOON.replace(year=year)
    write(tmp_path / "journal", [operation(0)])
    write(tmp_path / "journal", [operation(1, watched_at=far)], "far", at=far)
    reported(spark, tmp_path)
    write_page(str(tmp_path / "out"))
    assert [row["operations"] for row in table(tmp_path, "days")] == [1]


def test_clean_table_is_read_by_duckdb_as_documented(spark: Spark, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    query = page.partition("```sql\n")[2].partition("```")[0]
    write(tmp_path / "journal", [operation(n, key=f"{n}") for n in range(3)])
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "clean"))
    found = duckdb.sql(query.replace("clean/", f"{tmp_path}/clean/"))
    assert found is not None
    assert found.fetchall() == [("completed", 3)]
