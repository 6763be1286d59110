"""After overlapping, killed or failed runs, the table is the old one or the right new one."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.journal import schema as schemas
from aiopurgatory.pipeline.cleaning import versions
from aiopurgatory.pipeline.cleaning.cleaner import Job, clean
from aiopurgatory.pipeline.cleaning.table_run import Counts, TornJournalError
from aiopurgatory.pipeline.cleaning.versions import LostRaceError, LostRowsError, Manifest, published
from aiopurgatory.pipeline.ingest import LeftOutError, UnreadableError, ingest, refuse_incomplete
from aiopurgatory.pipeline.spark.tasks import Spark

from .journals import NOON, clean_table, operation, write

DAY = timedelta(days=1)


def ingested(spark: Spark, folder: Path, **options: Any) -> Counts:
    return ingest(spark, str(folder / "journal"), str(folder / "out"), **options)["operations"]


def sequences(out: Path) -> list[int]:
    return sorted(clean_table(out)["sequence"].to_pylist())


def write_days(journal: Path, days: int = 3) -> list[Path]:
    """Write a file of two operations to the folder of each day."""
    return [
        write(journal, [operation(2 * n + i, watched_at=NOON + n * DAY) for i in (0, 1)], f"f-{n}", at=NOON + n * DAY)
        for n in range(days)
    ]


# one folder in the other


@pytest.mark.parametrize("out", ["journal", "journal/out", ".", "link", "journal/../journal/"])
def test_ingest_into_the_journal_refused_and_untouched(tmp_path: Path, out: str, spark: Spark) -> None:
    journal = tmp_path / "journal"
    files = {path: path.read_bytes() for path in write_days(journal)}
    (tmp_path / "link").symlink_to(journal)
    with pytest.raises(PurgatoryError, match="out must not overlap with the journal's folder"):
        ingest(spark, str(journal), str(tmp_path / out))
    assert {path: path.read_bytes() for path in journal.rglob("*") if path.is_file()} == files


# two at once


def test_ingest_two_at_once_one_publishes_the_other_says_so(spark: Spark, tmp_path: Path) -> None:
    write_days(tmp_path / "journal")
    barrier, outcomes = threading.Barrier(2), list[object]()

    def run() -> None:
        barrier.wait()
        try:
            outcomes.append(ingested(spark, tmp_path).rows_out)
        except LostRaceError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 6 in outcomes
    assert all(each == 6 or "another run has published version 1" in str(each) for each in outcomes)
    assert sequences(tmp_path / "out") == list(range(6))


def test_publish_taken_number_refused_and_the_first_one_stays(spark: Spark, tmp_path: Path) -> None:
    versions.publish(str(tmp_path), Manifest(1, "a"))
    with pytest.raises(LostRaceError, match=r"another run has published version 1 .*: this run has changed nothing"):
        versions.publish(str(tmp_path), Manifest(1, "b"))
    assert versions.current(str(tmp_path)).run == "a"
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["00000001.json"]


def test_publish_rows_that_are_not_there_said(spark: Spark, tmp_path: Path) -> None:
    write_days(tmp_path / "journal", 1)
    ingested(spark, tmp_path)
    manifest = published(str(tmp_path / "out"))
    manifest.number += 1
    (day,) = manifest.days.values()
    path, rows = day.files["operations"][0]
    day.files["operations"][0] = path, rows + 1
    with pytest.raises(LostRowsError, match=r"must have 3 rows, got 2"):
        versions.publish(str(tmp_path / "out"), manifest)


# readers


def test_reader_while_another_version_is_published_reads_on(spark: Spark, tmp_path: Path) -> None:
    write_days(tmp_path / "journal")
    ingested(spark, tmp_path)
    files = published(str(tmp_path / "out")).files(str(tmp_path / "out"), "operations")
    write(tmp_path / "journal", [operation(9)], "late")
    ingested(spark, tmp_path)
    assert sum(pq.read_metadata(file).num_rows for file in files) == 6
    assert sequences(tmp_path / "out") == [0, 1, 2, 3, 4, 5, 9]


def test_ingest_old_versions_removed_when_nobody_may_need_them(spark: Spark, tmp_path: Path) -> None:
    write_days(tmp_path / "journal", days=5)
    abandoned = tmp_path / "out" / "versions" / "20200101T000000Z-0"
    abandoned.mkdir(parents=True)
    at_work = tmp_path / "out" / "versions" / f"{versions.begin('')[0]}"
    at_work.mkdir()
    ingested(spark, tmp_path, keep=timedelta())
    first = published(str(tmp_path / "out")).run
    write(tmp_path / "journal", [operation(99)], "late")
    ingested(spark, tmp_path, keep=timedelta())  # its manifest names files of both
    second = published(str(tmp_path / "out")).run
    assert {path.name for path in abandoned.parent.iterdir()} == {at_work.name, first, second}
    ingested(spark, tmp_path, keep=timedelta(), every=True)
    third = published(str(tmp_path / "out")).run
    assert {path.name for path in abandoned.parent.iterdir()} == {at_work.name, third}
    assert len(list((tmp_path / "out" / "manifests").iterdir())) == 1
    assert sequences(tmp_path / "out") == [*range(10), 99]


def test_ingest_that_fails_leaves_nothing_behind(spark: Spark, tmp_path: Path) -> None:
    write_days(tmp_path / "journal")
    ingested(spark, tmp_path)
    before = sorted((tmp_path / "out").rglob("*"))
    write(tmp_path / "journal", [operation(9)], "torn").write_bytes(b"no parquet")
    with pytest.raises(TornJournalError):
        ingested(spark, tmp_path)
    assert sorted((tmp_path / "out").rglob("*")) == before


# paths


@pytest.mark.parametrize("name", ["José ü", "[1]", "{x,y}", "a:b", "100%", "a b?c*", "date=1", "x\\y"])
def test_ingest_any_path_works(spark: Spark, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    first = write_days(folder / "journal", 1)[0]
    first.rename(first.with_name(f"{name}.parquet"))
    assert ingested(spark, folder) == Counts(files=1, rows_in=2, rows_out=2)
    assert sequences(folder / "out") == [0, 1]


# files that cannot be read now


def unplug(file: Path, how: str) -> None:
    """Make a file unreadable."""
    file.unlink()
    file.symlink_to({"dangling": "/nowhere/at/all", "input/output error": "/proc/self/mem"}[how])


@pytest.mark.parametrize("how", ["dangling", "input/output error"])
def test_ingest_unreadable_file_is_counted_and_its_days_stay(spark: Spark, tmp_path: Path, how: str) -> None:
    journal = tmp_path / "journal"
    files = write_days(journal, 5)
    ingested(spark, tmp_path)
    unplug(files[2], how)
    write(journal, [operation(90 + n, watched_at=NOON + n * DAY) for n in (0,)], "late-0", at=NOON)
    write(journal, [operation(93, watched_at=NOON + 3 * DAY)], "late-3", at=NOON + 3 * DAY)
    counts = ingest(spark, str(journal), str(tmp_path / "out"))
    assert (counts["operations"].unreadable, counts["operations"].torn_files) == (1, 0)
    assert sequences(tmp_path / "out") == [*range(10), 90, 93]
    with pytest.raises(UnreadableError, match="1 files or folders of the journal cannot be read now"):
        refuse_incomplete(counts)
    files[2].unlink()
    write_days(journal, 5)
    assert ingested(spark, tmp_path).unreadable == 0
    assert sequences(tmp_path / "out") == [*range(10), 90, 93]


def test_ingest_unreadable_at_first_the_others_are_there(spark: Spark, tmp_path: Path) -> None:
    files = write_days(tmp_path / "journal", 2)
    unplug(files[1], "dangling")
    assert ingested(spark, tmp_path).unreadable == 1
    assert sequences(tmp_path / "out") == [0, 1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_ingest_forbidden_folder_its_days_stay(spark: Spark, tmp_path: Path) -> None:
    files = write_days(tmp_path / "journal", 2)
    ingested(spark, tmp_path)
    files[1].parent.chmod(0)
    try:
        assert ingested(spark, tmp_path).unreadable == 1
    finally:
        files[1].parent.chmod(0o755)
    assert sequences(tmp_path / "out") == [0, 1, 2, 3]


# files that are gone


def test_ingest_deleted_files_their_rows_stay_until_remake(spark: Spark, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_days(journal, 4)
    over_midnight = NOON.replace(hour=23, minute=59)
    write(journal, [operation(50, watched_at=over_midnight, waited_us=300_000_000)], "f-night", at=over_midnight)
    ingested(spark, tmp_path)
    shutil.rmtree(journal / "operations" / f"date={NOON:%Y-%m-%d}")  # with a row of the next day in it
    write(journal, [operation(93, watched_at=NOON + 3 * DAY)], "late-3", at=NOON + 3 * DAY)
    write(journal, [operation(91, watched_at=NOON + DAY)], "late-1", at=NOON + DAY)
    assert ingested(spark, tmp_path).kept_days == [str((NOON + DAY).date())]
    assert sequences(tmp_path / "out") == [*range(8), 50, 91, 93]
    ingested(spark, tmp_path)
    assert sequences(tmp_path / "out") == [*range(8), 50, 91, 93]
    ingested(spark, tmp_path, remake=True)
    assert sequences(tmp_path / "out") == [*range(8), 91, 93]


def test_ingest_hours_deleted_while_others_come_nothing_freezes(spark: Spark, tmp_path: Path) -> None:
    journal, hour = tmp_path / "journal", timedelta(hours=1)
    files = []
    for number in range(40):  # an hour each; those older than a day are deleted
        at = NOON + number * hour
        files.append(write(journal, [operation(number, watched_at=at)], f"f-{number}", at=at))
        if number >= 24:
            files[number - 24].unlink()
        if number % 10 == 9:
            refuse_incomplete(ingest(spark, str(journal), str(tmp_path / "out")))
    assert sequences(tmp_path / "out") == list(range(40))


def test_ingest_as_many_files_as_before_but_others_rows_stay(spark: Spark, tmp_path: Path) -> None:
    files = write_days(tmp_path / "journal", 1)
    ingested(spark, tmp_path)
    files[0].unlink()
    write(tmp_path / "journal", [operation(9)], "late")
    assert ingested(spark, tmp_path).left_out == 0
    assert sequences(tmp_path / "out") == [0, 1, 9]


def test_ingest_file_renamed_its_rows_are_not_there_twice(spark: Spark, tmp_path: Path) -> None:
    files = write_days(tmp_path / "journal", 1)
    ingested(spark, tmp_path)
    files[0].rename(files[0].with_name("renamed.parquet"))
    for _ in range(2):  # it is said again and again
        counts = ingest(spark, str(tmp_path / "journal"), str(tmp_path / "out"))
        with pytest.raises(LeftOutError, match="2 rows of new files are left out"):
            refuse_incomplete(counts)
        assert sequences(tmp_path / "out") == [0, 1]
    assert ingested(spark, tmp_path, remake=True).left_out == 0
    assert sequences(tmp_path / "out") == [0, 1]


def test_ingest_too_many_torn_files_nothing_changes(spark: Spark, tmp_path: Path) -> None:
    files = write_days(tmp_path / "journal", 4)
    ingested(spark, tmp_path)
    files[0].write_bytes(b"no parquet")
    with pytest.raises(TornJournalError, match=r"1 of 4 files are torn or stray, more than max_torn allows.*f-0"):
        ingested(spark, tmp_path)
    assert sequences(tmp_path / "out") == list(range(8))
    assert ingested(spark, tmp_path, max_torn=0.25).torn_files == 1
    assert sequences(tmp_path / "out") == [2, 3, 4, 5, 6, 7]


# one task


def test_clean_small_files_together_same_reports_as_alone(tmp_path: Path) -> None:
    late = NOON + timedelta(hours=12)
    contents = [
        [operation(n) for n in range(5)],
        [operation(n, instance=f"host-{n % 2}", waited_us=-1 if n == 3 else 5) for n in (2, 1, 3, 4, 3)],
        [operation(n, weight=math.nan) for n in range(2)],
        [],
        [operation(n, watched_at=late if n > 1 else NOON) for n in range(4)],
    ]
    copies = [[0, 4], [1], [], [], [3]]
    paths = [str(write(tmp_path / "journal", rows, f"f-{number}")) for number, rows in enumerate(contents)]
    given = [(path, NOON.date(), rows) for path, rows in zip(paths, copies, strict=True)]
    job = Job("operations", str(tmp_path / "out"), frozenset([NOON.date()]))
    together = clean(given, job)
    alone = [clean([each], job) for each in given]
    assert together.files == [file for report in alone for file in report.files]
    written = Counter({each.what: each.rows for each in together.written})
    assert (written["operations"], written["quarantine/operations"]) == (7, 4)


@pytest.mark.parametrize(
    ("last", "copies", "whole"),
    [
        pytest.param({}, [], True, id="all good"),
        pytest.param({"waited_us": -1}, [], False, id="one impossible"),
        pytest.param({}, [3], False, id="one a duplicate"),
        pytest.param({"watched_at": NOON + timedelta(hours=12)}, [], False, id="one of the next day"),
    ],
)
def test_clean_file_copied_only_if_all_of_it_is_of_one_day(
    tmp_path: Path, last: dict[str, Any], copies: list[int], whole: bool
) -> None:
    path = write(tmp_path / "journal", [*map(operation, range(9)), operation(9, **last)])
    report = clean([(str(path), NOON.date(), copies)], Job("operations", str(tmp_path / "out")))
    found = {each.day: Path(each.path) for each in report.written if each.what == "operations"}
    assert (found[str(NOON.date())].read_bytes() == path.read_bytes()) == whole
    rows = [row for each in found.values() for row in pq.ParquetFile(each).read()["sequence"].to_pylist()]
    assert sorted(rows) == [n for n in range(10) if n not in copies and (n < 9 or "waited_us" not in last)]


def test_clean_file_with_more_columns_is_not_copied(tmp_path: Path) -> None:
    schema = schemas.OPERATIONS.append(pa.field("foreign", pa.string()))
    path = write(tmp_path / "journal", [operation(0) | {"foreign": "secret"}], schema=schema)
    clean([(str(path), NOON.date(), [])], Job("operations", str(tmp_path / "out")))
    (out,) = (tmp_path / "out" / "operations").rglob("*.parquet")
    assert pq.ParquetFile(out).schema_arrow.names == schemas.OPERATIONS.names


def test_folders_in_a_store_are_refused(spark: Spark) -> None:
    with pytest.raises(PurgatoryError, match="folders must be on a disk that every machine reaches"):
        ingest(spark, "s3a://bucket/journal", "out")
