"""Ingest: nothing is lost, nothing is there twice, and no file or row brings it down."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal.schema import OPERATIONS
from aiopurgatory.pipeline.cleaning import journal_tables as tables
from aiopurgatory.pipeline.cleaning.survey import survey
from aiopurgatory.pipeline.ingest import Counts, LostRowsError, ingest

from .journals import NOON, expired, operation, snapshot, write

DAY = timedelta(days=1)


def ingested(spark: SparkSession, folder: Path, **days: Any) -> Counts:
    return ingest(spark, str(folder / "journal"), str(folder / "out"), **days)["operations"]


def sequences(spark: SparkSession, folder: Path) -> list[int]:
    rows = tables.read_clean(spark, str(folder / "out"), tables.OPERATIONS)
    return sorted(row.sequence for row in rows.select("sequence").collect())


def reasons(spark: SparkSession, folder: Path) -> dict[str, int]:
    aside = spark.read.parquet(str(folder / "out" / "quarantine" / "operations"))
    return dict(Counter(row.reason for row in aside.select("reason").collect()))


def test_ingest_good_rows_come_out_as_they_went_in(spark: SparkSession, tmp_path: Path) -> None:
    rows = [operation(0), expired(1, key="('orders', 0)"), operation(2, purgatory="a/b=ü %")]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=3, rows_out=3)
    clean = tables.read_clean(spark, str(tmp_path / "out"), tables.OPERATIONS)
    expected = [tuple((row | {"date": NOON.date()})[name] for name in clean.columns) for row in rows]
    assertDataFrameEqual(clean, spark.createDataFrame(expected, tables.OPERATIONS.clean))


def test_ingest_again_same_result(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(5)] + [operation(5, waited_us=-1)])
    (torn := write(tmp_path / "journal", [operation(9)], "torn")).write_bytes(torn.read_bytes()[:-9])
    first = ingested(spark, tmp_path)
    text = (tmp_path / "out" / "ingest.json").read_text()
    assert ingested(spark, tmp_path) == first
    assert (tmp_path / "out" / "ingest.json").read_text() == text
    assert sequences(spark, tmp_path) == [0, 1, 2, 3, 4]
    assert reasons(spark, tmp_path) == {"waited_us is negative": 1}


def test_ingest_repaired_journal_nothing_set_aside_any_more(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0, outcome="lost")])
    write(tmp_path / "journal", [operation(1)], "other")
    assert ingested(spark, tmp_path).set_aside == {"outcome is unknown": 1}
    write(tmp_path / "journal", [operation(0)], file.stem)
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=2, rows_out=2)
    assert not (tmp_path / "out" / "quarantine" / "operations").exists()


def test_ingest_file_delivered_twice_counted_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(n) for n in range(10)])
    write(tmp_path / "journal", [operation(n) for n in range(10, 20)], "next")
    shutil.copy(file, file.with_name("again.parquet"))
    assert ingested(spark, tmp_path) == Counts(files=3, rows_in=30, rows_out=20, duplicates=10)
    assert sequences(spark, tmp_path) == list(range(20))


def test_ingest_same_sequence_of_two_instances_both_stay(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0), operation(0, instance="host-2")])
    assert ingested(spark, tmp_path).rows_out == 2


def test_ingest_duplicate_of_impossible_row_good_one_stays(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0, weight=math.nan), operation(0)])
    counts = ingested(spark, tmp_path)
    assert (counts.rows_out, counts.duplicates, sum(counts.set_aside.values())) == (1, 0, 1)


@given(
    files=st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=8), min_size=1, max_size=4)
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ingest_any_duplicates_same_as_a_set(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[str, int]]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for number, rows in enumerate(files):
        write(folder / "journal", [operation(n, instance=name) for name, n in rows], f"f-{number}")
    counts = ingested(spark, folder)
    wanted = {row for rows in files for row in rows}
    assert counts.rows_in == sum(map(len, files))
    assert counts.rows_out == len(wanted)
    if wanted:
        clean = tables.read_clean(spark, str(folder / "out"), tables.OPERATIONS)
        assert sorted((row.instance, row.sequence) for row in clean.collect()) == sorted(wanted)


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "schema_version is unknown": {"schema_version": 2},
    "instance is null": {"instance": None},
    "waited_us is null": {"waited_us": None},
    "weight is null": {"weight": None},
    "purgatory is no name for a folder": {"purgatory": "x" * 1_000_000},
    "outcome is unknown": {"outcome": "Completed"},
    "sequence is negative": {"sequence": -(10**18)},
    "key_count is not positive": {"key_count": 0},
    "waited_us is negative": {"waited_us": -1},
    "waited_us is longer than a year": {"waited_us": 10**18},
    "timeout_us is negative": {"timeout_us": -(2**63)},
    "lateness_us is negative": {"outcome": "expired", "lateness_us": -1},
    "lateness_us is longer than a year": {"outcome": "expired", "lateness_us": 2**63 - 1},
    "lateness_us without expiring, or the reverse": {"lateness_us": 1},
    "missed_trigger without completing": {"outcome": "cancelled", "missed_trigger": True},
    "weight is not from 1 to 1e9": {"weight": math.nan},
    "time not of its file's day": {"watched_at": datetime(1970, 1, 1, tzinfo=UTC)},
}


def test_ingest_impossible_rows_set_aside_with_reason(spark: SparkSession, tmp_path: Path) -> None:
    bad = [operation(100 + n) | changes for n, changes in enumerate(IMPOSSIBLE.values())]
    more = [
        operation(200, purgatory=""),
        operation(201, weight=math.inf),
        operation(202, weight=0.5),
        operation(203, watched_at=pa.scalar(2**63 - 1, pa.timestamp("us", tz="UTC"))),
        operation(204, watched_at=pa.scalar(-(2**63), pa.timestamp("us", tz="UTC"))),
        operation(205, watched_at=NOON + 2 * DAY),
    ]
    write(tmp_path / "journal", [operation(0), *bad, *more, operation(1)])
    counts = ingested(spark, tmp_path)
    once = dict.fromkeys(IMPOSSIBLE, 1)
    assert counts.set_aside == once | {
        "purgatory is no name for a folder": 2,
        "weight is not from 1 to 1e9": 3,
        "time not of its file's day": 4,
    }
    assert counts.rows_out == 2
    assert reasons(spark, tmp_path) == counts.set_aside


def test_ingest_huge_values_that_are_possible_stay(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        operation(0, sequence=10**18, key="k" * 1_000_000),
        operation(1, timeout_us=10**18, key_hash=-(2**63), key_count=2**31 - 1, weight=1e9),
        operation(2, timeout_us=None, watched_at=NOON - 300 * DAY, waited_us=300 * 86_400 * 1_000_000),
    ]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=3, rows_out=3)
    clean = tables.read_clean(spark, str(tmp_path / "out"), tables.OPERATIONS)
    assert clean.selectExpr("max(length(key))").collect()[0][0] == 1_000_000


def test_ingest_torn_files_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    good = write(journal, [operation(0)])
    whole = good.read_bytes()
    for name, content in {"empty": b"", "short": whole[:-20], "text": b"no parquet", "feet": whole[-8:]}.items():
        good.with_name(f"{name}.parquet").write_bytes(content)
    good.with_name(".begun.parquet").write_bytes(b"still being written")
    good.with_name("notes.txt").write_text("not of the journal")
    counts = ingested(spark, tmp_path)
    assert (counts.files, counts.files_set_aside, counts.rows_out) == (5, 4, 1)
    files = spark.read.parquet(str(tmp_path / "out" / "quarantine" / "files")).collect()
    assert all(row.problem.startswith("torn: ") for row in files)


def test_ingest_torn_in_the_middle_whole_file_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [operation(0)])
    later = NOON + 2 * DAY  # all there is of its day
    rows = [operation(n, key=f"{n:09}" * 9, watched_at=later) for n in range(1, 2001)]
    torn = write(journal, rows, "torn", at=later)
    column = pq.ParquetFile(torn).metadata.row_group(0).column(OPERATIONS.names.index("key"))
    content = bytearray(torn.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    torn.write_bytes(content)
    counts = ingested(spark, tmp_path)
    assert counts == Counts(files=2, rows_in=2001, rows_out=1, files_set_aside=1, rows_of_files_set_aside=2000)
    assert sequences(spark, tmp_path) == [0]


def test_ingest_foreign_columns_left_out(spark: SparkSession, tmp_path: Path) -> None:
    extra = OPERATIONS.append(pa.field("date", pa.int32())).append(pa.field("nested", pa.list_(pa.int8())))
    write(tmp_path / "journal", [operation(0) | {"date": 5, "nested": [1]}], schema=extra)
    assert ingested(spark, tmp_path).rows_out == 1


def test_ingest_column_of_another_type_file_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    number = OPERATIONS.names.index("waited_us")
    text = OPERATIONS.set(number, pa.field("waited_us", pa.string()))
    write(journal, [operation(0, waited_us="20000")], "text", schema=text)
    write(journal, [operation(1)], "twice", schema=OPERATIONS.append(pa.field("WAITED_US", pa.int64())))
    write(journal, [operation(2)])
    counts = ingested(spark, tmp_path)
    assert (counts.files_set_aside, counts.rows_of_files_set_aside, counts.rows_out) == (2, 2, 1)
    problems = {row.problem for row in spark.read.parquet(str(tmp_path / "out" / "quarantine" / "files")).collect()}
    assert problems == {"column waited_us is string, not int64", "column waited_us is there more than once"}


def test_ingest_older_file_without_a_nullable_column_is_null(spark: SparkSession, tmp_path: Path) -> None:
    without = OPERATIONS.remove(OPERATIONS.names.index("key"))
    write(tmp_path / "journal", [operation(0)], schema=without)
    assert ingested(spark, tmp_path).rows_out == 1


def test_ingest_file_without_identity_rows_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    without = OPERATIONS.remove(OPERATIONS.names.index("sequence"))
    write(tmp_path / "journal", [operation(0), operation(1)], schema=without)
    assert ingested(spark, tmp_path).set_aside == {"sequence is null": 2}


def test_ingest_stray_files_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    good = write(journal, [operation(0)])
    for place in ("", "date=2026-99-99/hour=12", "date=soon/hour=1", "date=2026-11-21"):
        (journal / "operations" / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(good, journal / "operations" / place / "stray.parquet")
    counts = ingested(spark, tmp_path)
    assert (counts.files_set_aside, counts.rows_out) == (4, 1)


def test_ingest_date_is_that_of_the_end(spark: SparkSession, tmp_path: Path) -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    watched = midnight - timedelta(milliseconds=20)
    rows = [operation(0, watched_at=watched, waited_us=19_999), operation(1, watched_at=watched, waited_us=20_000)]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path).rows_out == 2
    clean = tables.read_clean(spark, str(tmp_path / "out"), tables.OPERATIONS)
    assert {row.sequence: row.date for row in clean.collect()} == {0: date(2026, 11, 21), 1: date(2026, 11, 22)}


def test_ingest_late_file_of_one_day_others_untouched(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for number in range(4):
        write(journal, [operation(number, watched_at=NOON + number * DAY)], f"day-{number}", at=NOON + number * DAY)
    ingested(spark, tmp_path)
    write(journal, [operation(9, watched_at=NOON + DAY)], "late", at=NOON + DAY)
    day = (NOON + DAY).date()
    counts = ingested(spark, tmp_path, first=day, last=day)
    assert counts == Counts(files=4, rows_in=4, rows_out=2, other_days=2)
    assert sequences(spark, tmp_path) == [0, 1, 2, 3, 9]


def test_ingest_of_one_day_keeps_what_was_set_aside_of_others_and_counts_strays(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, days = tmp_path / "journal", [NOON + number * DAY for number in range(4)]
    for number, day in enumerate(days):
        write(journal, [operation(number, watched_at=day)], f"day-{number}", at=day)
        (bad := write(journal, [operation(9)], "torn", at=day)).write_bytes(bad.read_bytes()[:-9])
    shutil.copy(journal / "operations/date=2026-11-21/hour=12/day-0.parquet", journal / "operations/stray.parquet")
    ingested(spark, tmp_path)
    bad.unlink()  # of the last day
    counts = ingested(spark, tmp_path, first=days[3].date())
    assert (counts.files, counts.files_set_aside, counts.rows_out) == (4, 2, 1)
    aside = spark.read.parquet(str(tmp_path / "out" / "quarantine" / "files")).collect()
    names = Counter(Path(row.file).stem for row in aside)
    assert names == {"torn": 3, "stray": 1}
    assert {row.file_date for row in aside} == {None, *(day.date() for day in days[:3])}


def test_ingest_day_that_can_be_read_no_more_is_there_no_more(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    file = write(journal, [operation(0)])
    write(journal, [operation(1, watched_at=NOON + 2 * DAY, waited_us=-1)], "other", at=NOON + 2 * DAY)
    write(journal, [operation(2, purgatory="other", watched_at=NOON + 2 * DAY)], "third", at=NOON + 2 * DAY)
    ingested(spark, tmp_path)
    assert sequences(spark, tmp_path) == [0, 2]
    file.write_bytes(b"no parquet")
    write(journal, [operation(2, waited_us=-1, watched_at=NOON + 2 * DAY)], "third", at=NOON + 2 * DAY)
    counts = ingested(spark, tmp_path, first=NOON.date(), last=NOON.date())
    assert (counts.rows_out, counts.files_set_aside) == (0, 1)
    assert sequences(spark, tmp_path) == [2]
    assert ingested(spark, tmp_path).set_aside == {"waited_us is negative": 2}
    assert sequences(spark, tmp_path) == []


def test_ingest_statistics_once_each(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [operation(0)])
    rows = [snapshot(), snapshot(), snapshot(NOON + timedelta(seconds=10)), snapshot(purged=-1)]
    write(journal, rows, table="statistics")
    counts = ingest(spark, str(journal), str(tmp_path / "out"))["statistics"]
    assert counts == Counts(files=1, rows_in=4, rows_out=2, duplicates=1, set_aside={"purged is negative": 1})
    said = json.loads((tmp_path / "out" / "ingest.json").read_text())
    assert said["statistics"]["duplicates"] == 1


def test_ingest_nothing_outside_the_folders(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path / "journal", [operation(0)])
    ingested(spark, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "journal", "out"}
    assert not list((tmp_path / "here").iterdir())


def test_ingest_no_journal_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"journal must be a folder with operations in it, got .*/none"):
        ingest(spark, str(tmp_path / "none"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_counts_that_do_not_add_up_refused() -> None:
    Counts(rows_in=10, rows_out=5, duplicates=1, set_aside={"a": 2}, other_days=1, rows_of_files_set_aside=1).check()
    with pytest.raises(LostRowsError, match="rows must come out as they went in"):
        Counts(rows_in=10, rows_out=9).check()


def test_ingest_file_that_comes_meanwhile_is_of_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, clean = tmp_path / "journal", str(tmp_path / "clean")
    write(journal, [operation(0)])

    def look(*args: Any) -> DataFrame:
        seen = survey(*args)
        write(journal, [operation(1)], "host-1-1")
        return seen

    monkeypatch.setattr("aiopurgatory.pipeline.ingest.survey", look)
    counts = ingest(spark, str(journal), clean)["operations"]
    assert (counts.rows_in, counts.rows_out) == (1, 1)
    monkeypatch.undo()
    assert ingest(spark, str(journal), clean)["operations"].rows_out == 2
