"""The stream makes the report's minutes, also from repeated rows and after kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.minutes.alert import Band
from aiopurgatory.pipeline.minutes.measures import KEYS, MEASURES
from aiopurgatory.pipeline.report import report
from aiopurgatory.pipeline.spark.failures import JobFailedError, plain_errors
from aiopurgatory.pipeline.stream import follow, stream

from .journals import NOON, expired, operation, write

MINUTE = timedelta(minutes=1)
#: A file that even root cannot read.
WRITE_ONLY = Path("/sys/bus/cpu/drivers_probe")


def streamed(spark: SparkSession, folder: Path, **options: Any) -> tuple[list[str], int]:
    """Return the printed lines, and the number of rows that came too late."""
    lines: list[str] = []
    query = stream(spark, str(folder / "journal"), str(folder / "out"), once=True, say=lines.append, **options)
    try:
        return lines, follow(query, lambda _: None)
    finally:
        query.stop()


def table(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "out" / "minutes").rglob("*.parquet"))
    return by_minute([row for file in files for row in pq.ParquetFile(file).read().to_pylist()])


def reported(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Make the same table by ingest and report."""
    ingest(spark, str(folder / "journal"), str(folder / "clean"), max_torn=1.0)
    report(spark, str(folder / "clean"), str(folder / "report"))
    files = sorted((folder / "report" / "minutes").glob("*.parquet"))
    return by_minute([row for file in files for row in pq.ParquetFile(file).read().to_pylist()])


def by_minute(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select the common columns, of minutes with ended operations."""
    by = ("minute", *KEYS)
    ended = [row for row in rows if row["operations"]]
    return sorted(
        ({name: row[name] for name in (*by, *MEASURES)} for row in ended), key=lambda row: [row[n] for n in by]
    )


def operations(folder: Path) -> float:
    return sum(float(row["operations"]) for row in table(folder))


def rows_of(minute: int, first: int, count: int = 6) -> list[dict[str, Any]]:
    """Return operations of the minute after noon; every third expired."""
    at = NOON + minute * MINUTE
    made = [(expired if n % 3 == 0 else operation)(first + n, watched_at=at, weight=2.0) for n in range(count)]
    return [*made, operation(first + count, purgatory="produce", watched_at=at, waited_us=first * 1_000)]


def test_stream_batches_restarts_and_copies_same_as_report(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    file = write(journal, rows_of(0, 0), "f-0")
    write(journal, [*rows_of(58, 10), operation(17, waited_us=-1, watched_at=NOON + 58 * MINUTE)], "f-1")
    lines, late = streamed(spark, tmp_path, max_files=1, watermark="2 hours")
    assert lines == ["batch 1: 1 rows left out: waited_us is negative"]
    shutil.copy(file, file.with_name("f-2-again.parquet"))
    write(journal, rows_of(0, 20), "f-3")
    write(journal, rows_of(62, 30), "f-4")
    torn = write(journal, rows_of(62, 40), "f-5")
    torn.write_bytes(torn.read_bytes()[:-5])
    lines, late = streamed(spark, tmp_path, watermark="2 hours")
    assert ": a file left out: torn: " in lines[0]
    assert lines[0].endswith("f-5.parquet")
    assert (len(lines), late) == (1, 0)
    assert len(table(tmp_path)) == 6
    assert table(tmp_path) == reported(spark, tmp_path)


def test_stream_late_rows_counted_and_future_does_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    soon = datetime.now(UTC) + timedelta(hours=9)
    write(journal, [operation(90, watched_at=soon)], "a-future", at=soon)
    write(journal, [operation(0, watched_at=NOON + 30 * MINUTE)], "b")
    lines, late = streamed(spark, tmp_path, max_files=1)
    assert lines == ["batch 0: 1 rows left out: it ended in the future"]
    write(journal, [operation(1, watched_at=NOON), operation(2, watched_at=NOON + 25 * MINUTE)], "c")
    lines, late = streamed(spark, tmp_path, max_files=1)
    assert late == 1
    assert operations(tmp_path) == 2


def test_stream_too_many_expire_alert(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [expired(n) for n in range(100)])
    lines, _ = streamed(spark, tmp_path, expired_share=Band(0.0, 0.2))
    assert lines == [
        "ALERT fetch: 100.0% of 100 operations expired in the minute of 2026-11-21 12:00, normal is 0.0% to 20.0%"
    ]


def test_stream_minute_completed_late_alert(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [expired(n) for n in range(9)], "a")
    write(journal, [operation(n, watched_at=NOON + MINUTE) for n in range(10, 20)], "b")
    write(journal, [expired(n) for n in range(20, 31)], "c")
    lines, _ = streamed(spark, tmp_path, expired_share=Band(0.0, 0.2, fewest=10), max_files=1)
    assert lines == [
        "ALERT fetch: 100.0% of 20 operations expired in the minute of 2026-11-21 12:00, normal is 0.0% to 20.0%",
        "normal again: fetch: 0.0% of 10 operations expired in the minute of 2026-11-21 12:01",
    ]


def test_stream_no_journal_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match="journal must be a folder with operations in it"):
        stream(spark, str(tmp_path / "journal"), str(tmp_path / "out"))


def test_stream_one_folder_in_the_other_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [operation()])
    with pytest.raises(PurgatoryError, match="out must not overlap with the journal's folder"):
        stream(spark, str(tmp_path), str(tmp_path / "operations" / "out"))


def test_stream_max_files_none_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"^max_files must be >= 1, got 0$"):
        stream(spark, str(tmp_path / "journal"), str(tmp_path / "out"), max_files=0)


def test_stream_watermark_no_time_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation()])
    with pytest.raises(PurgatoryError, match=r"^watermark must be a duration such as '10 minutes', got 'soon'$"):
        stream(spark, str(tmp_path / "journal"), str(tmp_path / "out"), watermark="soon")


def test_stream_strange_names_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "José [1] {x,y} 100%20"
    names = ["plain", "sp ace", "[1]", "{x,y}", "é", "50%25", "a*b?", "12:30", "back\\slash"]
    for number, name in enumerate(names):
        write(folder / "journal", [operation(number)], name)
    write(folder / "journal", [operation(90)], "._hidden")
    assert streamed(spark, folder) == ([], 0)
    assert operations(folder) == len(names)
    assert streamed(spark, folder) == ([], 0)
    assert operations(folder) == len(names)


def test_stream_colon_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "12:30" / "journal", [operation()])
    assert streamed(spark, tmp_path / "12:30") == ([], 0)
    assert operations(tmp_path / "12:30") == 1
    write(tmp_path / "[12:30]" / "journal", [operation()])
    with pytest.raises(PurgatoryError, match="journal must not have a colon in its path beside one of"):
        streamed(spark, tmp_path / "[12:30]")


def test_stream_reads_the_paths_alone_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [operation()])
    spark.conf.set("spark.sql.sources.binaryFile.maxLength", "1")  # Spark refuses to read a longer file
    try:
        assert streamed(spark, tmp_path) == ([], 0)
    finally:
        spark.conf.unset("spark.sql.sources.binaryFile.maxLength")
    assert operations(tmp_path) == 1


def test_stream_stray_file_said(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation()])
    file.rename(tmp_path / "journal" / "operations" / "stray.parquet")
    lines, _ = streamed(spark, tmp_path)
    assert len(lines) == 1
    assert "a file left out: is in no date=.../hour=... folder, in " in lines[0]
    assert lines[0].endswith("/stray.parquet")


def test_stream_file_unreadable_stops_and_is_read_later(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0), operation(1)], "b")
    write(tmp_path / "journal", [operation(2)], "a")
    unread = unreadable(file)
    for _ in range(2):
        line = failed(spark, tmp_path)
        assert line.startswith(f"a file cannot be read now; start the stream again when it can be: {file}: ")
        assert not (tmp_path / "out" / "minutes").exists()
    unread.rename(file)
    assert streamed(spark, tmp_path) == ([], 0)
    assert operations(tmp_path) == 3


def test_stream_file_gone_says_how_to_go_on(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path / "journal", [operation(0)], "b")
    write(tmp_path / "journal", [operation(1)], "a")
    unreadable(file)
    failed(spark, tmp_path)
    file.unlink()
    line = failed(spark, tmp_path)
    assert line.startswith("a file was deleted before it was read; put it back, or an empty one in its place, and ")
    assert f": {file} (full traceback: " in line
    file.touch()
    assert streamed(spark, tmp_path) == ([], 0)
    assert operations(tmp_path) == 1


def unreadable(file: Path) -> Path:
    """Make *file* unreadable, also for root; return the path of its content."""
    kept = file.rename(file.with_suffix(".kept"))
    if not WRITE_ONLY.exists():
        pytest.skip(f"there is no {WRITE_ONLY}")
    file.symlink_to(WRITE_ONLY)
    return kept


def failed(spark: SparkSession, folder: Path) -> str:
    """Return the last line of the stream."""
    with pytest.raises(JobFailedError) as caught, plain_errors(folder / "out"):
        streamed(spark, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stream two files, and add a third."""
    folder = tmp_path_factory.mktemp("taken")
    for number in range(3):
        write(folder / "journal", [operation(number)], f"f-{number}")
        if number < 2:
            streamed(spark, folder, max_files=1)
    return folder


@pytest.mark.parametrize("torn", ["metadata", "offsets/*", "commits/*", "sources/0/*", "state/0/0/*.zip"])
def test_stream_torn_checkpoint_says_what_to_remove(
    spark: SparkSession, taken: Path, tmp_path: Path, torn: str
) -> None:
    shutil.copytree(taken, tmp_path, dirs_exist_ok=True)
    out = tmp_path / "out"
    files = sorted((out / "checkpoint").glob(torn), key=lambda path: (len(path.name), path.name))
    file = [path for path in files if not path.name.endswith(".crc")][-1]
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(file.read_bytes()[:5])
    line = failed(spark, tmp_path)
    assert line.startswith(f"the checkpoint is torn: remove both {out}/checkpoint and {out}/batches, and")
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(PurgatoryError, match=r"checkpoint is missing: remove .*/batches, too, to start over"):
        streamed(spark, tmp_path)
    shutil.rmtree(out / "batches")
    assert streamed(spark, tmp_path) == ([], 0)
    assert operations(tmp_path) == 3


def test_stream_sums_gone_refused(spark: SparkSession, taken: Path, tmp_path: Path) -> None:
    shutil.copytree(taken, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "out" / "batches")
    with pytest.raises(PurgatoryError, match=r"batches is missing: remove .*/checkpoint, too, to start over"):
        streamed(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stream_killed_in_the_middle_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    for number in range(12):  # the tenth is noted in a compact file
        write(journal, rows_of(5 * number, 10 * number), f"f-{number:02}")
    command = [sys.executable, "-m", "aiopurgatory", "pipeline", "stream", str(journal), str(out)]
    command += ["--once", "--max-files", "1", "--watermark", "2 hours", "--master", "local[2]"]
    for batch in (1, 4):
        process = subprocess.Popen(command, start_new_session=True)
        wait_for(out / "checkpoint" / "offsets" / str(batch), process)
        os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM: in the middle of this batch
        process.wait()
    assert not (out / "checkpoint" / "commits" / "11").exists()
    subprocess.run(command, check=True)
    assert table(tmp_path) == reported(spark, tmp_path)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
