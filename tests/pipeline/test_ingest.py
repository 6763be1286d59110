"""Ingest loses nothing, counts nothing twice, and survives every file and row."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiopurgatory.cli import main
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal import schema as journal_schema
from aiopurgatory.pipeline.cleaning.table_run import Counts
from aiopurgatory.pipeline.cleaning.versions import FileDay, LostRowsError, current
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.spark.tasks import Spark

from .journals import NOON, clean_table, expired, operation, snapshot, write

DAY = timedelta(days=1)
COLUMNS = journal_schema.OPERATIONS


def ingested(spark: Spark, folder: Path, **options: Any) -> Counts:
    options = {"max_torn": 1.0, **options}
    return ingest(spark, str(folder / "journal"), str(folder / "out"), **options)["operations"]


def sequences(folder: Path) -> list[int]:
    return sorted(clean_table(folder / "out")["sequence"].to_pylist())


def quarantined(folder: Path) -> dict[str, FileDay]:
    """Return the state of the files of operations, by file day."""
    days = current(str(folder / "out")).file_days
    return {name: day["operations"] for name, day in days.items() if "operations" in day}


def reasons(folder: Path) -> dict[str, int]:
    paths = [f"{folder}/out/{path}" for day in quarantined(folder).values() for path in day.quarantine]
    return dict(Counter(why for path in paths for why in pq.read_table(path, partitioning=None)["reason"].to_pylist()))


def torn(folder: Path) -> dict[str, str]:
    """Return the names of the torn files, with the reasons."""
    return {Path(path).stem: why for day in quarantined(folder).values() for path, why, _ in day.torn}


def test_ingest_good_rows_come_out_as_they_went_in(spark: Spark, tmp_path: Path) -> None:
    rows = [operation(0), expired(1, key="('orders', 0)"), operation(2, purgatory="a/b=ü %")]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=3, rows_out=3)
    assert clean_table(tmp_path / "out").select(COLUMNS.names).to_pylist() == rows


def test_ingest_again_same_result(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(5)] + [operation(5, waited_us=-1)])
    (torn := write(tmp_path / "journal", [operation(9)], "torn")).write_bytes(torn.read_bytes()[:-9])
    first = ingested(spark, tmp_path)
    assert ingested(spark, tmp_path, every=True) == first
    assert current(str(tmp_path / "out")).number == 2
    assert sequences(tmp_path) == [0, 1, 2, 3, 4]
    assert reasons(tmp_path) == {"waited_us is negative": 1}


def test_ingest_repaired_journal_nothing_quarantined_any_more(spark: Spark, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0, outcome="lost")])
    write(tmp_path / "journal", [operation(1)], "other")
    assert ingested(spark, tmp_path).quarantined == {"outcome is unknown": 1}
    write(tmp_path / "journal", [operation(0)], file.stem)
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=2, rows_out=2)
    assert reasons(tmp_path) == {}


def test_ingest_file_delivered_twice_counted_and_dropped(spark: Spark, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(n) for n in range(10)])
    write(tmp_path / "journal", [operation(n) for n in range(10, 20)], "next")
    shutil.copy(file, file.with_name("again.parquet"))
    assert ingested(spark, tmp_path) == Counts(files=3, rows_in=30, rows_out=20, duplicates=10)
    assert sequences(tmp_path) == list(range(20))


def test_ingest_same_sequence_of_two_instances_both_stay(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0), operation(0, instance="host-2")])
    assert ingested(spark, tmp_path).rows_out == 2


def test_ingest_duplicate_of_impossible_row_good_one_stays(spark: Spark, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0, weight=math.nan), operation(0)])
    counts = ingested(spark, tmp_path)
    assert (counts.rows_out, counts.duplicates, sum(counts.quarantined.values())) == (1, 0, 1)


@pytest.mark.parametrize("at_home", [0, 1 << 30], ids=["on Spark", "in this process"])
@given(
    files=st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=8), min_size=1, max_size=4)
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ingest_any_duplicates_same_as_a_set(
    spark: Spark, tmp_path_factory: pytest.TempPathFactory, at_home: int, files: list[list[tuple[str, int]]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for number, rows in enumerate(files):
        write(folder / "journal", [operation(n, instance=name) for name, n in rows], f"f-{number}")
    with patch("aiopurgatory.pipeline.cleaning.table_run._AT_HOME", at_home):
        counts = ingested(spark, folder)
    wanted = {row for rows in files for row in rows}
    assert counts.rows_in == sum(map(len, files))
    assert counts.rows_out == len(wanted)
    if wanted:
        found = [(row["instance"], row["sequence"]) for row in clean_table(folder / "out").to_pylist()]
        assert sorted(found) == sorted(wanted)


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "schema_version is unknown": {"schema_version": 2},
    "instance is null": {"instance": None},
    "waited_us is null": {"waited_us": None},
    "weight is null": {"weight": None},
    "purgatory is not of 1 to 255 bytes": {"purgatory": "x" * 1_000_000},
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


def test_ingest_impossible_rows_quarantined_with_reason(spark: Spark, tmp_path: Path) -> None:
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
    assert counts.quarantined == once | {
        "purgatory is not of 1 to 255 bytes": 2,
        "weight is not from 1 to 1e9": 3,
        "time not of its file's day": 4,
    }
    assert counts.rows_out == 2
    assert reasons(tmp_path) == counts.quarantined


def test_ingest_huge_values_that_are_possible_stay(spark: Spark, tmp_path: Path) -> None:
    rows = [
        operation(0, sequence=10**18, key="k" * 1_000_000),
        operation(1, timeout_us=10**18, key_hash=-(2**63), key_count=2**31 - 1, weight=1e9),
        operation(2, timeout_us=None, watched_at=NOON - 300 * DAY, waited_us=300 * 86_400 * 1_000_000),
    ]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=3, rows_out=3)
    assert max(len(key or "") for key in clean_table(tmp_path / "out")["key"].to_pylist()) == 1_000_000


def test_ingest_torn_torn_files(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    good = write(journal, [operation(0)])
    whole = good.read_bytes()
    for name, content in {"empty": b"", "short": whole[:-20], "text": b"no parquet", "feet": whole[-8:]}.items():
        good.with_name(f"{name}.parquet").write_bytes(content)
    good.with_name(".begun.parquet").write_bytes(b"still being written")
    good.with_name("notes.txt").write_text("not of the journal")
    counts = ingested(spark, tmp_path)
    assert (counts.files, counts.torn_files, counts.rows_out) == (5, 4, 1)
    found = torn(tmp_path)
    assert found.keys() == {"empty", "short", "text", "feet"}
    assert all(why.startswith("torn: ") for why in found.values())


def test_ingest_torn_in_the_middle_whole_file_quarantined(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [operation(0)])
    later = NOON + 2 * DAY  # all there is of its day
    rows = [operation(n, key=f"{n:09}" * 9, watched_at=later) for n in range(1, 2001)]
    torn = write(journal, rows, "torn", at=later)
    column = pq.ParquetFile(torn).metadata.row_group(0).column(COLUMNS.names.index("key"))
    content = bytearray(torn.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    torn.write_bytes(content)
    counts = ingested(spark, tmp_path)
    assert counts == Counts(files=2, rows_in=2001, rows_out=1, torn_files=1, rows_of_torn_files=2000)
    assert sequences(tmp_path) == [0]


def test_ingest_foreign_columns_left_out(spark: Spark, tmp_path: Path) -> None:
    extra = COLUMNS.append(pa.field("date", pa.int32())).append(pa.field("nested", pa.list_(pa.int8())))
    write(tmp_path / "journal", [operation(0) | {"date": 5, "nested": [1]}], schema=extra)
    assert ingested(spark, tmp_path).rows_out == 1


def test_ingest_column_of_another_type_file_quarantined(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    number = COLUMNS.names.index("waited_us")
    text = COLUMNS.set(number, pa.field("waited_us", pa.string()))
    write(journal, [operation(0, waited_us="20000")], "text", schema=text)
    write(journal, [operation(1)], "twice", schema=COLUMNS.append(pa.field("WAITED_US", pa.int64())))
    write(journal, [operation(2)])
    counts = ingested(spark, tmp_path)
    assert (counts.torn_files, counts.rows_of_torn_files, counts.rows_out) == (2, 2, 1)
    assert torn(tmp_path) == {
        "text": "column waited_us is string, not int64",
        "twice": "column waited_us is there more than once",
    }


def test_ingest_older_file_without_a_nullable_column_is_null(spark: Spark, tmp_path: Path) -> None:
    without = COLUMNS.remove(COLUMNS.names.index("key"))
    write(tmp_path / "journal", [operation(0)], schema=without)
    assert ingested(spark, tmp_path).rows_out == 1


def test_ingest_file_without_identity_rows_quarantined(spark: Spark, tmp_path: Path) -> None:
    without = COLUMNS.remove(COLUMNS.names.index("sequence"))
    write(tmp_path / "journal", [operation(0), operation(1)], schema=without)
    assert ingested(spark, tmp_path).quarantined == {"sequence is null": 2}


def test_ingest_stray_torn_files(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    good = write(journal, [operation(0)])
    for place in ("", "date=2026-99-99/hour=12", "date=soon/hour=1", "date=2026-11-21"):
        (journal / "operations" / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(good, journal / "operations" / place / "stray.parquet")
    counts = ingested(spark, tmp_path)
    assert (counts.torn_files, counts.rows_out) == (4, 1)


def test_ingest_date_is_that_of_the_end(spark: Spark, tmp_path: Path) -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    watched = midnight - timedelta(milliseconds=20)
    rows = [operation(0, watched_at=watched, waited_us=19_999), operation(1, watched_at=watched, waited_us=20_000)]
    write(tmp_path / "journal", rows)
    assert ingested(spark, tmp_path).rows_out == 2
    days = {
        day: clean_table(tmp_path / "out", day, day)["sequence"].to_pylist()
        for day in (date(2026, 11, 21), date(2026, 11, 22))
    }
    assert days == {date(2026, 11, 21): [0], date(2026, 11, 22): [1]}


def test_ingest_one_day_keeps_quarantine_of_others_counts_strays(spark: Spark, tmp_path: Path) -> None:
    journal, days = tmp_path / "journal", [NOON + number * DAY for number in range(4)]
    for number, day in enumerate(days):
        write(journal, [operation(number, watched_at=day)], f"day-{number}", at=day)
        (bad := write(journal, [operation(9)], "torn", at=day)).write_bytes(bad.read_bytes()[:-9])
    shutil.copy(journal / "operations/date=2026-11-21/hour=12/day-0.parquet", journal / "operations/stray.parquet")
    ingested(spark, tmp_path)
    write(journal, [operation(4, watched_at=days[3])], "late", at=days[3])
    counts = ingested(spark, tmp_path)
    assert (counts.torn_files, counts.rows_out) == (4, 3)  # of days 1 to 3, with the stray one, and of days 2 and 3
    days_of = {name: [Path(path).stem for path, _, _ in day.torn] for name, day in quarantined(tmp_path).items()}
    assert days_of == {"none": ["stray"], **{str(day.date()): ["torn"] for day in days}}


def test_ingest_day_that_can_be_read_no_more_is_there_no_more(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    file = write(journal, [operation(0)])
    write(journal, [operation(1, watched_at=NOON + 2 * DAY, waited_us=-1)], "other", at=NOON + 2 * DAY)
    write(journal, [operation(2, purgatory="other", watched_at=NOON + 2 * DAY)], "third", at=NOON + 2 * DAY)
    ingested(spark, tmp_path)
    assert sequences(tmp_path) == [0, 2]
    file.write_bytes(b"no parquet")
    counts = ingested(spark, tmp_path)
    assert (counts.rows_out, counts.torn_files) == (0, 1)
    assert sequences(tmp_path) == [2]
    write(journal, [operation(2, waited_us=-1, watched_at=NOON + 2 * DAY)], "third", at=NOON + 2 * DAY)
    assert ingested(spark, tmp_path, every=True).quarantined == {"waited_us is negative": 2}
    assert sequences(tmp_path) == []


def test_ingest_statistics_once_each(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [operation(0)])
    rows = [snapshot(), snapshot(), snapshot(NOON + timedelta(seconds=10)), snapshot(purged=-1)]
    write(journal, rows, table="statistics")
    counts = ingest(spark, str(journal), str(tmp_path / "out"))["statistics"]
    assert counts == Counts(
        files=1, rows_in=4, rows_out=2, duplicates=1, quarantined=Counter({"purged is negative": 1})
    )
    assert current(str(tmp_path / "out")).counts["statistics"]["duplicates"] == 1


def test_ingest_nothing_outside_the_folders(spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path / "journal", [operation(0)])
    ingested(spark, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "journal", "out"}
    assert not list((tmp_path / "here").iterdir())


def test_ingest_no_journal_refused(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"journal must be a folder with operations in it, got .*/none"):
        ingest(spark, str(tmp_path / "none"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("max_torn", [math.nan, -0.1, 1.5])
def test_ingest_max_torn_that_is_no_share_is_refused(spark: Spark, tmp_path: Path, max_torn: float) -> None:
    write(tmp_path / "journal", [operation(0)])
    with pytest.raises(PurgatoryError, match="max_torn must be a share from 0 to 1, got"):
        ingested(spark, tmp_path, max_torn=max_torn)


@pytest.mark.parametrize("hours", ["nan", "inf", "-1", "1e300"])
def test_command_ingest_impossible_keep_hours_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hours: str
) -> None:
    write(tmp_path / "journal", [operation(0)])
    folders = [str(tmp_path / "journal"), str(tmp_path / "out")]
    assert main(["pipeline", "ingest", *folders, "--keep-hours", hours]) == 1
    assert "keep_hours must be from 0 to 876,000, got" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# days whose files have not changed


def test_ingest_new_file_rebuilds_its_day_and_those_beside_it(spark: Spark, tmp_path: Path) -> None:
    journal, days = tmp_path / "journal", [NOON + number * DAY for number in range(7)]
    for number, day in enumerate(days):
        write(journal, [operation(number, watched_at=day)], f"f-{number}", at=day)
    assert ingested(spark, tmp_path).rows_out == 7
    before = current(str(tmp_path / "out"))
    assert ingested(spark, tmp_path) == Counts()
    write(journal, [operation(90, watched_at=days[3] + 1.5 * timedelta(hours=12))], "late", at=days[3])
    counts = ingested(spark, tmp_path)
    assert (counts.files, counts.rows_out, counts.other_days) == (6, 4, 2)  # of days 1 to 5, and 2 to 4
    after = current(str(tmp_path / "out"))
    same = {name for name in before.days if before.days[name] == after.days[name]}
    assert same == {str(days[number].date()) for number in (0, 1, 5, 6)}
    assert sequences(tmp_path) == [*range(7), 90]
    assert ingested(spark, tmp_path) == Counts()


def test_ingest_file_of_the_next_day_repeats_rows_they_are_dropped(spark: Spark, tmp_path: Path) -> None:
    journal, night = tmp_path / "journal", NOON.replace(hour=23, minute=59)
    write(journal, [operation(0, watched_at=night)], at=night)
    ingested(spark, tmp_path)
    write(journal, [operation(0, watched_at=night), operation(1, watched_at=NOON + DAY)], "again", at=NOON + DAY)
    assert ingested(spark, tmp_path).duplicates == 1
    assert sequences(tmp_path) == [0, 1]


def test_ingest_changed_statistics_leave_operations_alone(spark: Spark, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", str(tmp_path / "out")
    write(journal, [operation(0)])
    write(journal, [snapshot()], table="statistics")
    ingested(spark, tmp_path)
    before = current(out).days[str(NOON.date())]
    write(journal, [snapshot(NOON + timedelta(seconds=1))], "more", table="statistics")
    counts = ingest(spark, str(journal), out)
    assert (counts["operations"], counts["statistics"].rows_out) == (Counts(), 2)
    after = current(out).days[str(NOON.date())]
    assert (after.files["operations"], after.spans) == (before.files["operations"], before.spans)
    assert after.files["work"] != before.files["work"]


def test_ingest_of_another_library_is_rebuilt(spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "journal", [operation(0)])
    ingested(spark, tmp_path)
    monkeypatch.setattr("aiopurgatory.__version__", "0.0")
    assert ingested(spark, tmp_path).rows_out == 1


def test_counts_that_do_not_add_up_refused() -> None:
    Counts(
        rows_in=10, rows_out=5, duplicates=1, quarantined=Counter({"a": 2}), other_days=1, rows_of_torn_files=1
    ).check()
    with pytest.raises(LostRowsError, match="rows in must equal rows out"):
        Counts(rows_in=10, rows_out=9).check()
