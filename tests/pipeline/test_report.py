"""The report of a journal that grows is the same as one that is made at once, and as a report by hand."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal.schema import OPERATIONS
from aiopurgatory.pipeline import attempts
from aiopurgatory.pipeline import report as command
from aiopurgatory.pipeline.attempts import committed, table
from aiopurgatory.pipeline.fit import fit
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.page.page import write_page
from aiopurgatory.pipeline.report import report
from aiopurgatory.pipeline.tables import REPORT

from .journals import NOON, expired, operation, snapshot, write
from .kills import Killed, in_turn, killing

DAY = timedelta(days=1)


def tables(spark: SparkSession, out: str) -> dict[str, list[str]]:
    return {name: sorted(map(str, table(spark, out, name).collect())) for name in REPORT}


def files(out: str, name: str) -> set[Path]:
    return set((Path(out) / "report").glob(f"*/{name}/**/*.parquet"))


def test_report_of_a_growing_journal_equals_one_made_at_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, grown, whole = (str(tmp_path / name) for name in ("journal", "grown", "whole"))
    for number in (0, 1, 4):
        at = NOON + number * DAY
        rows = [operation(200 * number + n, watched_at=at + timedelta(seconds=n)) for n in range(120)]
        write(Path(journal), rows, f"f-{number}", at=at)
        kinds = [{"kind": "DelayedFetch", "key": "('orders', int)", "operations": number}]
        write(
            Path(journal), [snapshot(at, checks=number, missed_kinds=kinds)], f"s-{number}", table="statistics", at=at
        )
    ingest(spark, journal, grown)
    report(spark, grown)
    untouched = files(grown, "minutes")
    assert untouched
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
        "missed": 1,
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


def test_report_without_its_account_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, journal, out)
    report(spark, out)
    before = tables(spark, out)
    for path in (*files(out, "files"), *files(out, "minutes"), *files(out, "hot_keys")):
        path.unlink()
    assert all(rows == [] for rows in tables(spark, out).values())
    report(spark, out)
    assert tables(spark, out) == before


def test_report_killed_between_steps_readers_see_one_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, out, whole = (str(tmp_path / name) for name in ("journal", "out", "whole"))
    for number in range(2):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
        ingest(spark, journal, out)
        if not number:
            report(spark, out)
    before = tables(spark, out)
    ingest(spark, journal, whole)
    report(spark, whole)
    wanted = tables(spark, whole)
    assert before["minutes"] != wanted["minutes"]
    for step in itertools.count():
        with monkeypatch.context() as patch:
            patch.setattr(command, "at_once", in_turn)
            written = killing(patch, step)
            try:
                report(spark, out)
            except Killed:
                assert len(written) == step
            else:
                break
        assert tables(spark, out) == before
    assert step == 11
    assert Path(written[-1]).name == "files"
    assert tables(spark, out) == wanted


def test_report_two_at_once_both_end_and_readers_see_one_whole(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(n) for n in range(9)])
    ingest(spark, journal, out)
    failed: list[BaseException] = []

    def make() -> None:
        try:
            report(spark, out)
        except BaseException as error:  # of a thread
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum(row.operations for row in table(spark, out, "days").collect()) == 9.0
    assert table(spark, out, "hot_keys").count() == 1


def test_report_old_folders_are_removed_and_days_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "EVERY", 4)
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    for number in range(4):
        at = NOON + DAY * (5 if number else 0)
        write(tmp_path / "journal", [operation(number, watched_at=at)], f"f-{number}", at=at)
        ingest(spark, journal, out)
        report(spark, out)
    kept = {path.parents[1].name.split(".")[0] for path in files(out, "days")}
    assert kept == {"1", "3", "4"}  # the first day's, the last reader's, and the newest
    assert [row.operations for row in table(spark, out, "days").orderBy("date").collect()] == [1.0, 3.0]


def test_report_of_another_line_of_attempts_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = str(tmp_path / "journal"), str(tmp_path / "out")
    write(tmp_path / "journal", [operation(0)])
    ingest(spark, journal, out)
    report(spark, out)
    (attempt,) = committed(spark, out)
    (tmp_path / "out/sums" / attempt.folder).rename(tmp_path / "aside")
    write(tmp_path / "journal", [operation(5, watched_at=NOON + DAY)], "late", at=NOON + DAY)
    ingest(spark, journal, out)
    report(spark, out)
    assert [row.operations for row in table(spark, out, "days").orderBy("date").collect()] == [1.0, 1.0]


def test_report_without_sums_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"there are no sums in .*: run ingest with this folder first"):
        report(spark, str(tmp_path / "out"))


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


def test_report_names_that_are_not_utf8_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", str(tmp_path / "out")
    names = {"purgatory": b"r\xe9sum\xe9s", "kind": b"\xff\xfe", "key": b"\x80"}
    binary = [field.with_type(pa.binary()) if field.name in names else field for field in OPERATIONS]
    write(journal, [operation(n, **names) for n in range(150)], schema=pa.schema(binary))
    write(journal, [operation(n, instance="host-2") for n in range(200)], "good")
    ingest(spark, str(journal), out)
    report(spark, out)
    write_page(spark, out, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<b>350 operations</b> ended" in page
    assert "r\N{REPLACEMENT CHARACTER}sum\N{REPLACEMENT CHARACTER}s" in page
    assert {each.purgatory: each.operations for each in fit(spark, out)}["fetch"] == 200


def test_report_times_are_in_utc_for_other_engines(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)])
    ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
    report(spark, str(tmp_path / "out"))
    (file,) = files(str(tmp_path / "out"), "minutes")
    column = pq.ParquetFile(file).read(["minute"])["minute"]
    assert column.type == pa.timestamp("us", "UTC")
    assert column.to_pylist() == [NOON]
