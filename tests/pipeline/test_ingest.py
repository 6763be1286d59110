"""Every row of a journal is counted once, or quarantined, whatever happens to its files."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.cli import main
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal.schema import OPERATIONS
from aiopurgatory.pipeline import attempts, intake, upkeep
from aiopurgatory.pipeline import ingest as command
from aiopurgatory.pipeline.attempts import committed, sums, table
from aiopurgatory.pipeline.fit import fit
from aiopurgatory.pipeline.ingest import Counts, ingest, summary
from aiopurgatory.pipeline.intake import LostRowsError
from aiopurgatory.pipeline.journal_files import located
from aiopurgatory.pipeline.report import report
from aiopurgatory.pipeline.rules import good
from aiopurgatory.pipeline.tables import REPORT

from .journals import NOON, expired, operation, snapshot, write
from .kills import Killed, in_turn, killing

DAY = timedelta(days=1)


def ingested(spark: SparkSession, folder: Path, **options: Any) -> Counts:
    return ingest(spark, str(folder / "journal"), str(folder / "out"), **options)["operations"]


def counted(spark: SparkSession, folder: Path) -> float:
    """Return the number of operations in the sums. All tables must have the same."""
    found = {
        name: sum(row.operations for row in sums(spark, str(folder / "out"), name).collect())
        for name in ("activity", "daily", "hours", "keys")
    }
    assert len(set(found.values())) == 1, found
    return float(found["activity"])


def quarantined(spark: SparkSession, folder: Path) -> list[tuple[str, int]]:
    """Return the reason and sequence number of each quarantined row."""
    rows = sums(spark, str(folder / "out"), "quarantined_operations").collect()
    return sorted((row.reason, row.sequence or 0) for row in rows)


def rewritten(file: Path, change: Any) -> None:
    pq.write_table(change(pq.ParquetFile(file).read()), file)


def with_type(name: str, kind: pa.DataType) -> Any:
    return lambda table: table.set_column(table.column_names.index(name), name, table[name].cast(kind))


# what counts


def test_ingest_good_rows_all_counted(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n, weight=2.5) for n in range(3)])
    write(tmp_path / "journal", [expired(3)], "other")
    write(tmp_path / "journal", [snapshot(), snapshot(NOON + timedelta(seconds=9))], table="statistics")
    counts = ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
    assert counts["operations"] == Counts(files=2, rows_in=4)
    assert counts["statistics"] == Counts(files=1, rows_in=2)
    assert counted(spark, tmp_path) == 8.5
    assert sums(spark, str(tmp_path / "out"), "snapshots").count() == 2


def test_ingest_again_reads_only_new_files(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)
    assert ingested(spark, tmp_path) == Counts()
    write(tmp_path / "journal", [operation(1)], "late")
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)
    assert counted(spark, tmp_path) == 2


def test_ingest_more_files_than_a_batch_takes_several(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
    assert ingested(spark, tmp_path, max_files=2) == Counts(files=5, rows_in=5)
    assert [each.number for each in committed(spark, str(tmp_path / "out"))] == [1, 2, 3]
    assert counted(spark, tmp_path) == 5


def test_ingest_empty_file_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    write(tmp_path / "journal", [], "empty")
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=1)
    assert ingested(spark, tmp_path) == Counts()


# duplicates


def test_ingest_file_delivered_twice_rows_count_once(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(n) for n in range(70)])
    shutil.copy(file, file.with_name("copy.parquet"))
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=140, duplicates=70)
    shutil.copy(file, file.with_name("later.parquet"))
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=70, duplicates=70)
    assert counted(spark, tmp_path) == 70


def test_ingest_same_sequence_of_two_instances_both_counted(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0), operation(0, instance="host-2")])
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=2)


def test_ingest_impossible_copy_of_a_row_the_good_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0, waited_us=-1)], "a")
    write(tmp_path / "journal", [operation(0), operation(1)], "b")
    counts = ingested(spark, tmp_path)
    assert (counts.rows_in, counts.duplicates, counts.counted) == (3, 0, 2)
    assert quarantined(spark, tmp_path) == [("waited_us is not from 0 to a year", 0)]
    write(tmp_path / "journal", [operation(2, waited_us=-1)], "c")
    ingested(spark, tmp_path)
    write(tmp_path / "journal", [operation(2)], "d")  # repaired
    assert ingested(spark, tmp_path).duplicates == 0
    assert counted(spark, tmp_path) == 3


def test_ingest_any_duplicates_same_as_a_set(spark: SparkSession, tmp_path: Path) -> None:
    luck = random.Random(7)
    known = set[tuple[str, int]]()
    for run in range(2):
        rows = 0
        for file in range(4):
            some = [(f"host-{luck.randrange(2)}", luck.randrange(200)) for _ in range(50)]
            write(tmp_path / "journal", [operation(n, instance=who) for who, n in some], f"f-{run}-{file}")
            rows += len(some)
            known |= set(some)
        before = counted(spark, tmp_path) if run else 0
        counts = ingested(spark, tmp_path)
        assert counts.rows_in == rows
        assert counted(spark, tmp_path) == len(known) == before + counts.counted


# rows that are impossible


def test_ingest_impossible_rows_quarantined_with_reason(spark: SparkSession, tmp_path: Path) -> None:
    hostile: list[dict[str, Any]] = [
        {"waited_us": -1},
        {"waited_us": 2**63 - 1},
        {"weight": math.nan},
        {"weight": 0.5},
        {"outcome": "vanished"},
        {"purgatory": ""},
        {"instance": None},
        {"schema_version": 2},
        {"lateness_us": 5},
        {"missed_trigger": True, "outcome": "failed"},
        {"watched_at": NOON - 5 * DAY},
    ]
    write(tmp_path / "journal", [operation(n, **change) for n, change in enumerate(hostile)] + [operation(99)])
    counts = ingested(spark, tmp_path)
    assert (counts.rows_in, counts.counted, counts.quarantined.total()) == (12, 1, 11)
    assert counted(spark, tmp_path) == 1
    assert [reason for reason, _ in quarantined(spark, tmp_path)] == sorted(counts.quarantined.elements())
    assert "  1 rows quarantined: outcome is unknown" in summary({"operations": counts})


def test_ingest_clock_ahead_of_its_file_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    ahead = NOON + 400 * DAY
    write(tmp_path / "journal", [operation(0, watched_at=ahead)], at=ahead)
    write(tmp_path / "journal", [operation(1)], "good")
    old = write(tmp_path / "journal", [operation(2)], "without a time")
    os.utime(old, (1, 1))
    assert ingested(spark, tmp_path).quarantined == {"time later than its file was written": 1}
    assert {str(row.date) for row in sums(spark, str(tmp_path / "out"), "daily").collect()} == {"2026-11-21"}


def test_ingest_impossible_snapshots_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [snapshot(), snapshot(checks=-1)], table="statistics")
    counts = ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))["statistics"]
    assert (counts.counted, dict(counts.quarantined)) == (1, {"checks is not from 0 to 1e15": 1})


# files


@pytest.fixture(scope="module")
def troubled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counts]:
    """A journal with two good files, and with files of which none can be read as a whole."""
    folder = tmp_path_factory.mktemp("troubled")
    journal = folder / "journal"
    first = 0
    for name in ("good", "torn", "rotten", "text", "magic", "string", "no instance", "stray", "deep"):
        write(journal, [operation(n) for n in range(first, first + 2_000)], name)
        first += 2_000
    place = journal / "operations" / "date=2026-11-21" / "hour=12"
    for name, length in (("torn", -300), ("magic", 4)):
        file = place / f"{name}.parquet"
        file.write_bytes(file.read_bytes()[:length])
    rotten = bytearray((place / "rotten.parquet").read_bytes())
    rotten[2_000:8_000] = bytes(6_000)
    (place / "rotten.parquet").write_bytes(rotten)
    (place / "text.parquet").write_text("no parquet")
    rewritten(place / "string.parquet", with_type("waited_us", pa.string()))
    rewritten(place / "no instance.parquet", lambda table: table.drop_columns("instance"))
    (place / "stray.parquet").rename(journal / "operations" / "stray.parquet")
    (place / "deep").mkdir()
    (place / "deep.parquet").rename(place / "deep" / "deep.parquet")
    (place / ".hidden.parquet.tmp").write_text("no parquet")
    (place / "notes.txt").write_text("no parquet")
    write(journal, [operation(90_000)], "late")
    return folder, ingested(spark, folder)


def test_ingest_files_that_cannot_be_read_quarantined_with_reason(troubled: tuple[Path, Counts]) -> None:
    counts = troubled[1]
    assert counts.counted == 2_001
    assert counts.quarantined == {"instance is null": 2_000}
    assert counts.problems == {
        "is torn, or no Parquet file": 4,
        "column waited_us must be of type bigint, got BINARY": 1,
    }


def nested(table: pa.Table) -> pa.Table:
    return with_column("key_hash", pa.array([[1]] * len(table)))(table)


def with_column(name: str, values: pa.Array) -> Any:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


#: How a file is changed, and why it is quarantined; None: it is read.
ODD: dict[str, tuple[Any, str | None]] = {
    "unsigned": (with_type("key_hash", pa.uint64()), "has a column of unsigned numbers of 64 bits"),
    "unsigned 32": (with_type("waited_us", pa.uint32()), None),
    "decimal": (with_type("key_hash", pa.decimal128(20, 0)), "column key_hash must be of type bigint, got "),
    "nanoseconds": (with_type("watched_at", pa.timestamp("ns", "UTC")), "column watched_at must be of type timestamp"),
    "list": (nested, "has a nested column"),
    "struct": (lambda table: with_column("kind", pa.array([{"a": 1}] * len(table)))(table), "has a nested column"),
    "twice": (lambda table: table.append_column("KIND", table["kind"]), "has the column kind twice"),
    "half floats": (
        lambda table: with_column("weight", pa.array([1.0] * 9, pa.float16()))(table),
        "column weight must",
    ),
}


def test_ingest_file_that_spark_cannot_scan_is_quarantined_alone(spark: SparkSession, tmp_path: Path) -> None:
    for number, (name, (change, _)) in enumerate(ODD.items()):
        file = write(tmp_path / "journal", [operation(n) for n in range(9 * number, 9 * number + 9)], name)
        rewritten(file, change)
    int96 = write(tmp_path / "journal", [operation(n) for n in range(900, 909)], "int96")
    pq.write_table(pq.ParquetFile(int96).read(), int96, use_deprecated_int96_timestamps=True)
    brotli = write(tmp_path / "journal", [operation(n) for n in range(910, 919)], "brotli")
    pq.write_table(pq.ParquetFile(brotli).read(), brotli, compression="brotli")
    good = [operation(n, instance="good") for n in range(100)]
    write(tmp_path / "journal", good, "z-good")
    counts = ingested(spark, tmp_path)
    assert counts.counted == counted(spark, tmp_path) == 100 + 9 + 9
    assert counts.files == len(ODD) + 3
    found = {Path(path).stem: why for why, path in counts.first.items()}
    files = sums(spark, str(tmp_path / "out"), "files").collect()
    problems = {Path(row.path).stem: row.problem for row in files}
    assert problems.pop("brotli") == "is compressed by Brotli, which Spark lacks"
    for name, (_, why) in ODD.items():
        assert problems[name] == why if why is None else (problems[name] or "").startswith(why), (name, problems[name])
    assert "brotli" in found
    assert any("brotli.parquet" in line for line in summary({"operations": counts}))


def test_ingest_file_of_no_bytes_is_counted_and_named_once(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0)])
    empty = file.with_name("empty é%41.parquet")
    empty.write_bytes(b"")
    counts = ingested(spark, tmp_path)
    assert (counts.files, counts.counted, counts.problems) == (2, 1, {"is empty, of 0 bytes": 1})
    assert counts.first["is empty, of 0 bytes"].endswith("/empty é%41.parquet")
    assert ingested(spark, tmp_path) == Counts()
    shutil.copy(write(tmp_path / "other", [operation(1)]), empty)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)


def test_ingest_strays_are_accounted_for(spark: SparkSession, troubled: tuple[Path, Counts]) -> None:
    files = sums(spark, str(troubled[0] / "out"), "files").where("problem LIKE 'lies in no folder%'").collect()
    assert sorted(Path(row.path).name for row in files) == ["deep.parquet", "stray.parquet"]


def test_ingest_again_torn_files_are_not_read_again(spark: SparkSession, troubled: tuple[Path, Counts]) -> None:
    assert ingested(spark, troubled[0]) == Counts()


def test_ingest_account_adds_up_by_file(spark: SparkSession, troubled: tuple[Path, Counts]) -> None:
    files = sums(spark, str(troubled[0] / "out"), "files").collect()
    assert len(files) == 10
    good = [row for row in files if not row.problem]
    assert sum(row.rows_in - row.bad - row.duplicates for row in good) == counted(spark, troubled[0]) == 2_001


def test_ingest_half_uploaded_file_counts_once_completed(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(n) for n in range(9)])
    whole = file.read_bytes()
    file.write_bytes(whole[:500])
    assert ingested(spark, tmp_path).problems.total() == 1
    file.write_bytes(whole)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=9)
    assert counted(spark, tmp_path) == 9


def test_ingest_rewritten_file_only_its_new_rows_count(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)])
    ingested(spark, tmp_path)
    write(tmp_path / "journal", [operation(n) for n in range(5)])
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=5, duplicates=3)
    assert counted(spark, tmp_path) == 5


def test_ingest_deleted_file_its_rows_stay(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0)])
    ingested(spark, tmp_path)
    file.unlink()
    write(tmp_path / "journal", [operation(1)], "late")
    ingested(spark, tmp_path)
    assert counted(spark, tmp_path) == 2
    assert days_shown(spark, tmp_path) == [NOON.date()]


def days_shown(spark: SparkSession, folder: Path) -> list[date]:
    out = str(folder / "out")
    report(spark, out)
    dates = [{row.date for row in table(spark, out, name).collect()} for name in ("minutes", "days", "work")]
    assert dates[0] == dates[1]
    assert dates[2] <= dates[0]
    return sorted(dates[0])


def test_ingest_day_whose_files_are_deleted_stays(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for n, at in enumerate((NOON, NOON - DAY)):
        write(journal, [operation(n, watched_at=at)], "f", at=at)
        write(journal, [snapshot(at), snapshot(at + timedelta(minutes=1))], table="statistics", at=at)
    ingested(spark, tmp_path)
    for name in ("operations", "statistics"):
        shutil.rmtree(journal / name / f"date={NOON:%Y-%m-%d}")
    assert ingested(spark, tmp_path) == Counts()
    assert len(committed(spark, str(tmp_path / "out"))) == 1
    assert days_shown(spark, tmp_path) == [(NOON - DAY).date(), NOON.date()]
    shutil.rmtree(journal / "operations")
    shutil.rmtree(journal / "statistics")
    assert ingested(spark, tmp_path) == Counts()
    assert days_shown(spark, tmp_path) == [(NOON - DAY).date(), NOON.date()]


def test_command_forget_removes_days_for_good(spark: SparkSession, tmp_path: Path) -> None:
    folders = [str(tmp_path / "journal"), str(tmp_path / "out")]
    for n, at in enumerate((NOON, NOON - DAY)):
        write(tmp_path / "journal", [operation(n, watched_at=at)], "f", at=at)
    ingested(spark, tmp_path)
    assert len(days_shown(spark, tmp_path)) == 2
    assert main(["pipeline", "ingest", "--forget-before", f"{NOON:%Y-%m-%d}", *folders]) == 0
    assert days_shown(spark, tmp_path) == [NOON.date()]
    assert [each.operations for each in fit(spark, folders[1])] == [1]
    write(tmp_path / "journal", [operation(2, watched_at=NOON - DAY)], "late", at=NOON - DAY)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)
    assert days_shown(spark, tmp_path) == [NOON.date()]


def test_ingest_sealed_days_are_not_listed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "journal", [operation(0)])
    ingested(spark, tmp_path)
    assert ingested(spark, tmp_path) == Counts()  # it was read just now
    assert len(committed(spark, str(tmp_path / "out"))) == 1
    monkeypatch.setattr(command, "QUIET", timedelta(0))
    assert ingested(spark, tmp_path) == Counts()
    batches = len(committed(spark, str(tmp_path / "out")))
    write(tmp_path / "journal", [operation(1)], "late")
    write(tmp_path / "journal", [operation(2, watched_at=NOON - 9 * DAY)], "other", at=NOON - 9 * DAY)
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)  # an old day that is new
    assert ingested(spark, tmp_path) == Counts()
    assert len(committed(spark, str(tmp_path / "out"))) == batches + 2
    (tmp_path / "journal" / "operations" / "stray.parquet").write_bytes(b"no parquet")
    assert ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))[""].files == 1
    assert ingested(spark, tmp_path, all_days=True) == Counts(files=1, rows_in=1)
    assert counted(spark, tmp_path) == 3


def test_ingest_killed_between_batches_seals_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
    monkeypatch.setattr(command, "QUIET", timedelta(0))
    with monkeypatch.context() as patch:
        patch.setattr(command, "_quiet", None)  # fails behind the last batch
        patch.setattr(command, "located", lambda files: located(files) if "f-0" in files[0].path else None)
        with pytest.raises(TypeError):
            ingested(spark, tmp_path, max_files=1)
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=2)


def test_ingest_two_journals_into_one_folder_days_of_the_other_stay(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(("one", "other")):
        write(tmp_path / name, [operation(number, watched_at=NOON - number * DAY)], at=NOON - number * DAY)
        ingest(spark, str(tmp_path / name), str(tmp_path / "out"))
    assert days_shown(spark, tmp_path) == [(NOON - DAY).date(), NOON.date()]
    assert len(committed(spark, str(tmp_path / "out"))) == 2


def test_ingest_columns_of_another_width_are_widened(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "waited_us": pa.int32(),
        "key_count": pa.int64(),
        "schema_version": pa.int64(),
        "watched_at": pa.timestamp("ms", tz="UTC"),
        "weight": pa.float32(),
        "purgatory": pa.large_string(),
    }
    for number, (name, kind) in enumerate(kinds.items()):
        rewritten(write(tmp_path / "journal", [expired(number)], name), with_type(name, kind))
    no_zone = write(tmp_path / "journal", [expired(50)], "no zone")
    rewritten(no_zone, with_type("watched_at", pa.timestamp("us")))
    assert ingested(spark, tmp_path) == Counts(files=7, rows_in=7)
    minutes = sums(spark, str(tmp_path / "out"), "activity").select("minute").distinct().collect()
    assert [row.minute for row in minutes] == [int(NOON.timestamp()) // 60]


def test_ingest_missing_and_foreign_columns(spark: SparkSession, tmp_path: Path) -> None:
    older = write(tmp_path / "journal", [operation(0)], "older")
    rewritten(older, lambda table: table.drop_columns("timeout_us"))
    more = OPERATIONS.append(pa.field("foreign", pa.string()))
    write(tmp_path / "journal", [operation(1) | {"foreign": "x"}], schema=more)
    snapshots = write(tmp_path / "journal", [snapshot()], table="statistics")
    rewritten(snapshots, lambda table: table.drop_columns("checks_of_twins"))
    counts = ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
    assert counts["operations"] == Counts(files=2, rows_in=2)
    assert counts["statistics"] == Counts(files=1, rows_in=1)


def test_ingest_folder_that_lies_about_its_day_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0)])
    for lie in ("date=2026-01-01", "date=garbage"):
        place = tmp_path / "journal" / "operations" / lie / "hour=x"
        place.mkdir(parents=True)
        rewritten(write(tmp_path / "journal", [operation(len(lie))], "lie"), lambda table: table)
        (file.parent / "lie.parquet").rename(place / "lie.parquet")
    assert ingested(spark, tmp_path).quarantined == {"time not of its file's day": 2}


def test_ingest_any_path_works(spark: SparkSession, tmp_path: Path) -> None:
    names = ["José ü", "[1]", "{x,y}", "100%", "%20a+b", "a b?c*", "date=1", "x\\y", 'it\'s "so"']
    folder = tmp_path / "%41 [b] {c,d} 'é' ?*="
    for number, name in enumerate(names):
        write(folder / "journal", [operation(2 * number), operation(2 * number + 1, waited_us=-1)], name)
    assert ingested(spark, folder) == Counts(9, 18, 0, Counter({"waited_us is not from 0 to a year": 9}))
    assert counted(spark, folder) == 9
    assert ingested(spark, folder) == Counts()


# two runs, and runs that fail


def test_ingest_two_at_once_rows_count_once(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
    barrier = threading.Barrier(2)

    def run() -> None:
        barrier.wait()
        ingested(spark, tmp_path)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted(spark, tmp_path) == 4
    write(tmp_path / "journal", [operation(9)], "late")
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)
    assert counted(spark, tmp_path) == 5


def forked(spark: SparkSession, folder: Path, names: Sequence[str]) -> None:
    """Take in the files of *names* as a run does that does not know the newest attempt."""
    place = folder / "journal" / "operations"
    hidden = folder / "hidden"
    others = [path for path in place.rglob("*.parquet") if path.stem not in names]
    hidden.mkdir()
    for path in others:
        path.rename(hidden / path.name)
    newest = committed(spark, str(folder / "out"))[-1]
    account = folder / "out/sums" / newest.folder / "files"
    account.rename(hidden / "account")
    ingested(spark, folder)
    (hidden / "account").rename(account)
    for path in others:
        (hidden / path.name).rename(path)


def test_ingest_beside_another_run_files_of_the_other_count_next_time(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)], "first")
    ingested(spark, tmp_path)
    write(tmp_path / "journal", [operation(1)], "second")
    ingested(spark, tmp_path)
    write(tmp_path / "journal", [operation(2)], "third")
    forked(spark, tmp_path, ["first", "third"])
    assert counted(spark, tmp_path) == 2  # the older of two lines
    assert ingested(spark, tmp_path) == Counts(files=1, rows_in=1)
    assert counted(spark, tmp_path) == 3


def test_ingest_killed_between_steps_nothing_counts_until_the_account(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "at_once", in_turn)
    write(tmp_path / "journal", [operation(0), operation(1, waited_us=-1)])
    write(tmp_path / "journal", [snapshot()], table="statistics")
    for step in itertools.count():
        with monkeypatch.context() as patch:
            written = killing(patch, step)
            try:
                counts = ingested(spark, tmp_path)
            except Killed:
                assert committed(spark, str(tmp_path / "out")) == []
            else:
                break
    assert Path(written[-1]).name == "files"
    assert step > 10
    assert counts.counted == 1
    assert counted(spark, tmp_path) == 1


def of_upkeep(path: str) -> bool:
    """Whether a batch that repeats others, or the removal of a batch, writes to *path*."""
    folder = next(each for each in Path(path).parts[::-1] if each.count(".") == 2)
    return int(folder.split(".")[0]) % 3 == 0 or path.endswith(folder)


def test_ingest_killed_while_it_repeats_and_removes_counts_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    monkeypatch.setattr(attempts, "EVERY", 3)
    monkeypatch.setattr(upkeep, "at_once", in_turn)
    steps = Counter[int]()
    for number in range(5):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
        for step in itertools.count(0, 4):
            line = committed(spark, out)
            with monkeypatch.context() as patch:
                killing(patch, step, among=of_upkeep)
                try:
                    ingested(spark, tmp_path)
                except Killed:
                    steps[number] += 1
                    assert committed(spark, out) == line
                else:
                    break
            assert counted(spark, tmp_path) == number
    assert set(steps) == {2, 4}
    assert min(steps.values()) > 3
    assert counted(spark, tmp_path) == 5
    assert sums(spark, out, "files").count() == 5


def test_ingest_dead_attempts_and_repeated_ones_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "EVERY", 3)
    out = str(tmp_path / "out")
    folders = tmp_path / "out" / "sums"
    for number in range(7):
        write(tmp_path / "journal", [operation(number), operation(99 - number, waited_us=-1)], f"f-{number}")
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(intake, "at_once", in_turn)
            killing(patch, 5, among=lambda path: "/sums/" in path)
            ingested(spark, tmp_path)
        assert counted(spark, tmp_path) == number
        ingested(spark, tmp_path)
        assert counted(spark, tmp_path) == number + 1
    numbers = Counter(int(each.parents[1].name.split(".")[0]) for each in folders.glob("*/seen/*.parquet"))
    assert len(quarantined(spark, tmp_path)) == 7
    live = [each.number for each in committed(spark, out)]
    assert live == [9, 10]
    # Those before the last but one that repeats are gone, and so are killed ones.
    assert {number for number in numbers if number < 6} == {3}
    bad = {int(each.parents[1].name.split(".")[0]) for each in folders.glob("*/quarantined_operations/*.parquet")}
    assert {number for number in bad if number < 6} == {3}
    assert len(list(folders.glob("*"))) > len(numbers)
    report(spark, out)
    assert sum(row.operations for row in table(spark, out, "days").collect()) == 7.0


def test_ingest_row_that_is_lost_fails_and_names_the_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "journal", [operation(n) for n in range(3)], "whole")
    write(tmp_path / "journal", [operation(n) for n in range(3, 6)], "short")
    with monkeypatch.context() as patch:
        patch.setattr(intake, "good", lambda rows, table: good(rows, table).where("sequence <> 4"))
        with pytest.raises(LostRowsError, match=r"6 rows must be counted, got 5; the rows of \['[^,]*short.parquet'\]"):
            ingested(spark, tmp_path)
    assert committed(spark, str(tmp_path / "out")) == []
    assert ingested(spark, tmp_path) == Counts(files=2, rows_in=6)


def test_ingest_batches_that_repeat_sums_count_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "EVERY", 2)
    for number in range(5):
        rows = [operation(number), operation(number // 2), operation(100 + number, waited_us=-1)]
        write(tmp_path / "journal", rows, f"f-{number}")
        ingested(spark, tmp_path)
    report(spark, str(tmp_path / "out"))
    assert counted(spark, tmp_path) == 5
    assert sums(spark, str(tmp_path / "out"), "files").count() == 5
    assert ingested(spark, tmp_path) == Counts()
    whole = str(tmp_path / "at once")
    ingest(spark, str(tmp_path / "journal"), whole)
    report(spark, whole)
    for name in REPORT:
        assertDataFrameEqual(table(spark, str(tmp_path / "out"), name), table(spark, whole, name))


def test_command_follow_counts_files_as_they_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses = iter([True, False])

    def pause(seconds: float) -> None:
        assert seconds == 7.0
        if not next(pauses):
            raise KeyboardInterrupt
        write(tmp_path / "journal", [operation(1), operation(2)], "late")

    write(tmp_path / "journal", [operation(0)])
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=pause))
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        command.run(spark, parser.parse_args([str(tmp_path / "journal"), str(tmp_path / "out"), "--follow", "7"]))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("operations")]
    assert [line.split(" new files")[0] for line in lines] == ["operations: 1 rows in 1", "operations: 2 rows in 1"]


def test_ingest_no_journal_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"there is no journal in .*/journal: give the folder that Journal"):
        ingested(spark, tmp_path)


def test_ingest_folders_in_the_wrong_order_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation(0)])
    assert ingested(spark, tmp_path).counted == 1
    with pytest.raises(PurgatoryError, match=r"there is no journal in .*/out: give the folder that Journal"):
        ingest(spark, str(tmp_path / "out"), str(tmp_path / "journal"))
    assert [each.name for each in (tmp_path / "journal").iterdir()] == ["operations"]


@pytest.mark.parametrize("out", ["journal", "journal/out", ".", "link", "journal/../journal/"])
def test_ingest_into_the_journal_refused(spark: SparkSession, tmp_path: Path, out: str) -> None:
    write(tmp_path / "journal", [operation(0)])
    (tmp_path / "link").symlink_to(tmp_path / "journal")
    with pytest.raises(PurgatoryError, match="out must not overlap with the journal's folder"):
        ingest(spark, str(tmp_path / "journal"), str(tmp_path / out))


def test_ingest_batches_of_no_files_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"max_files must be >= 1, got -1"):
        ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"), max_files=-1)


def test_ingest_batch_of_ten_rows_takes_few_jobs(spark: SparkSession, tmp_path: Path) -> None:
    def jobs() -> int:
        return max(spark.sparkContext.statusTracker().getJobIdsForGroup(), default=-1)

    for batch in range(2):
        write(tmp_path / "journal", [operation(100 * batch + n) for n in range(10)], f"f-{batch}")
        write(tmp_path / "journal", [snapshot(NOON)], f"s-{batch}", table="statistics")
        before = jobs()
        ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
    assert jobs() - before <= 15
