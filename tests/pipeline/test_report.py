"""The report of a journal that grows is the same as one that is made at once, and as a report by hand."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline import report as command
from aiopurgatory.pipeline.attempts import BusyError, alone, committed, table
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.page.page import write_page
from aiopurgatory.pipeline.report import report
from aiopurgatory.pipeline.tables import REPORT

from .journals import NOON, expired, operation, snapshot, write

DAY = timedelta(days=1)


def tables(spark: SparkSession, out: str) -> dict[str, list[str]]:
    return {name: sorted(map(str, table(spark, out, name).collect())) for name in REPORT}


def files(out: str, name: str) -> set[Path]:
    return set((Path(out) / "report" / name).rglob("*.parquet"))


def test_report_of_a_growing_journal_equals_one_made_at_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, grown, whole = (str(tmp_path / name) for name in ("journal", "grown", "whole"))
    for number in (0, 1, 4):
        at = NOON + number * DAY
        rows = [operation(200 * number + n, watched_at=at + timedelta(seconds=n)) for n in range(120)]
        write(Path(journal), rows, f"f-{number}", at=at)
        write(Path(journal), [snapshot(at, checks=number)], f"s-{number}", table="statistics", at=at)
    ingest(spark, journal, grown)
    report(spark, grown)
    untouched = files(grown, "minutes/date=2026-11-25")
    assert len(untouched) == 1
    late = operation(5000, watched_at=NOON + 2 * DAY, waited_us=3_000_000_000)
    write(
        Path(journal),
        [late, expired(5001, watched_at=NOON + 2 * DAY), operation(5002, weight=0.0)],
        "late",
        at=NOON + 2 * DAY,
    )
    write(
        Path(journal), [snapshot(NOON + 2 * DAY, checks=7, dropped_rows=3)], "s", table="statistics", at=NOON + 2 * DAY
    )
    ingest(spark, journal, grown)
    report(spark, grown)
    ingest(spark, journal, whole)
    report(spark, whole)
    found, wanted = tables(spark, grown), tables(spark, whole)
    for name in REPORT:
        assert found[name] == wanted[name], name
    assert untouched <= files(grown, "minutes")
    assert {name: len(rows) for name, rows in wanted.items()} == {
        "minutes": 7 + 50,
        "days": 4,
        "changes": 18,
        "timeouts": 10,
        "hot_keys": 1,
        "work": 4,
        "lost": 1,
        "settings": 1,
        "seconds": 0,
    }


def test_report_nothing_new_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(n, waited_us=3_000_000) for n in range(3)])
    ingest(spark, journal, out)
    report(spark, out)
    assert table(spark, out, "seconds").count() == 4
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    report(spark, out)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_report_that_was_killed_is_made_up_for(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, journal, out)
    report(spark, out)
    before = tables(spark, out)
    for path in (*files(out, "made"), *files(out, "minutes"), *files(out, "hot_keys")):
        path.unlink()
    report(spark, out)
    assert tables(spark, out) == before


def test_report_of_another_line_of_attempts_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, journal, out)
    report(spark, out)
    (attempt,) = committed(spark, out)
    (account,) = (tmp_path / "out/sums/files").glob(f"*/attempt={attempt.name}")
    account.rename(tmp_path / "aside")
    write(tmp_path / "journal", [operation(5, watched_at=NOON + DAY)], "late", at=NOON + DAY)
    ingest(spark, journal, out)
    report(spark, out)
    assert [row.operations for row in table(spark, out, "days").orderBy("date").collect()] == [1.0, 1.0]


def test_report_without_sums_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"there are no sums in .*: run ingest with this folder first"):
        report(spark, str(tmp_path / "out"))


def test_command_beside_another_run_refused(spark: SparkSession, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    with alone(tmp_path), pytest.raises(BusyError, match=r"another run is using .*: wait for it, or choose another"):
        command.run(spark, parser.parse_args([str(tmp_path)]))


def test_report_of_a_quiet_service_in_which_a_minute_only_waits(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    write(tmp_path / "journal", [operation(0, waited_us=300_000_000)])
    ingest(spark, str(tmp_path / "journal"), out)
    report(spark, out)
    write_page(spark, out, tmp_path / "one.html")
    write(tmp_path / "journal", [operation(n) for n in range(1, 200)], "more")
    ingest(spark, str(tmp_path / "journal"), out)
    report(spark, out)
    write_page(spark, out, tmp_path / "more.html")
    assert "too few operations to judge" in (tmp_path / "one.html").read_text("utf-8")
    assert "All promises kept" in (tmp_path / "more.html").read_text("utf-8")


def test_report_times_are_in_utc_for_other_engines(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)])
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
    report(spark, str(tmp_path / "out"))
    (file,) = files(str(tmp_path / "out"), "minutes")
    column = pq.ParquetFile(file).read(["minute"])["minute"]
    assert column.type == pa.timestamp("us", "UTC")
    assert column.to_pylist() == [NOON]
