"""The stream: the same minutes as the report has, whatever comes twice and whenever it is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.cleaning.journal_tables import OPERATIONS, read_clean
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.minutes.minutes import KEYS, MEASURES, activity, measured
from aiopurgatory.pipeline.stream import Alarm, Band, late_rows, stream

from .journals import NOON, expired, operation, write

MINUTE = timedelta(minutes=1)
LATE = 10 * MINUTE


def streamed(spark: SparkSession, folder: Path, **options: Any) -> tuple[list[str], int]:
    """What was said, and how many rows came too late."""
    said: list[str] = []
    query = stream(spark, str(folder / "journal"), str(folder / "out"), once=True, say=said.append, **options)
    query.awaitTermination(240)
    query.stop()
    return said, sum(late_rows(progress) for progress in query.recentProgress)


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder / "out" / "minutes")).select(*KEYS, "minute", *MEASURES)


def reported(spark: SparkSession, folder: Path) -> DataFrame:
    """The same table by ingest and report."""
    ingest(spark, str(folder / "journal"), str(folder / "clean"))
    by = [*KEYS, "minute"]
    return measured(activity(read_clean(spark, str(folder / "clean"), OPERATIONS)), by).select(*by, *MEASURES)


def rows_of(minute: int, first: int, count: int = 6) -> list[dict[str, Any]]:
    """Some operations of the minute after noon; every third expired."""
    at = NOON + minute * MINUTE
    made = [(expired if n % 3 == 0 else operation)(first + n, watched_at=at, weight=2.0) for n in range(count)]
    return [*made, operation(first + count, purgatory="produce", watched_at=at, waited_us=first * 1_000)]


def test_stream_batches_restarts_and_copies_same_as_report(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    file = write(journal, rows_of(0, 0), "f-0")
    write(journal, [*rows_of(58, 10), operation(17, waited_us=-1, watched_at=NOON + 58 * MINUTE)], "f-1")
    said, late = streamed(spark, tmp_path, files=1, late="2 hours")
    assert said == ["batch 1: 1 rows left out: waited_us is negative"]
    shutil.copy(file, file.with_name("f-2-again.parquet"))
    write(journal, rows_of(0, 20), "f-3")
    write(journal, rows_of(62, 30), "f-4")
    torn = write(journal, rows_of(62, 40), "f-5")
    torn.write_bytes(torn.read_bytes()[:-5])
    said, late = streamed(spark, tmp_path, late="2 hours")
    assert (said, late) == ([], 0)
    assertDataFrameEqual(table(spark, tmp_path), reported(spark, tmp_path), rtol=1e-9)


def test_stream_late_rows_counted_and_future_does_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    soon = datetime.now(UTC) + timedelta(hours=9)
    write(journal, [operation(90, watched_at=soon)], "a-future", at=soon)
    write(journal, [operation(0, watched_at=NOON + 30 * MINUTE)], "b")
    said, late = streamed(spark, tmp_path, files=1)
    assert said == ["batch 0: 1 rows left out: it ended in the future"]
    write(journal, [operation(1, watched_at=NOON), operation(2, watched_at=NOON + 25 * MINUTE)], "c")
    said, late = streamed(spark, tmp_path, files=1)
    assert late == 1
    assert sum(row.operations for row in table(spark, tmp_path).collect()) == 2


def test_stream_too_many_expire_alert(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "journal", [expired(n) for n in range(100)])
    said, _ = streamed(spark, tmp_path, band=Band(0.0, 0.2))
    assert said == [
        "ALERT fetch: 100.0% of 100 operations expired in the minute of 2026-11-21 12:00, normal is 0.0% to 20.0%"
    ]


def test_stream_minute_completed_late_alert(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [expired(n) for n in range(9)], "a")
    write(journal, [operation(n, watched_at=NOON + MINUTE) for n in range(10, 20)], "b")
    write(journal, [expired(n) for n in range(20, 31)], "c")
    said, _ = streamed(spark, tmp_path, band=Band(0.0, 0.2, fewest=10), files=1)
    assert said == [
        "ALERT fetch: 100.0% of 20 operations expired in the minute of 2026-11-21 12:00, normal is 0.0% to 20.0%",
        "normal again: fetch: 0.0% of 10 operations expired in the minute of 2026-11-21 12:01",
    ]


def test_stream_no_journal_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match="journal must be a folder with operations in it"):
        stream(spark, str(tmp_path), str(tmp_path / "out"))


def said_of(alarm: Alarm, *looks: tuple[int, float]) -> list[str]:
    """What is said of a batch, in short: of 100 operations in the minute after noon, a share expired."""
    lines = [alarm.lines("fetch", NOON + minute * MINUTE, 100, 100 * share) for minute, share in looks]
    return [re.sub(r"^(ALERT|normal again).* (\d+:\d+)\b.*", r"\1 \2", line) for each in lines for line in each]


def test_alarm_speaks_only_when_the_band_is_left_or_entered() -> None:
    alarm = Alarm(Band(0.1, 0.5, fewest=10), LATE)
    shares = [0.3, 0.6, 0.9, 0.5, 0.1, 0.0, 0.2]
    lines = [alarm.lines("fetch", NOON + n * MINUTE, 100, 100 * share) for n, share in enumerate(shares)]
    assert [len(each) for each in lines] == [0, 1, 0, 1, 0, 1, 1]
    assert lines[1][0].startswith("ALERT fetch: 60.0%")
    assert lines[3][0].startswith("normal again: fetch: 50.0%")
    assert alarm.lines("fetch", NOON + 6 * MINUTE, 9, 9) == []  # too few to say anything
    assert len(alarm.lines("produce", NOON, 10, 10)) == 1


def test_alarm_minute_completed_late_is_looked_at_again() -> None:
    alarm = Alarm(Band(fewest=10), LATE)
    assert alarm.lines("fetch", NOON, 9, 9) == []  # most of it is still to come
    assert said_of(alarm, (1, 0.2)) == []
    assert said_of(alarm, (0, 0.9), (1, 0.2)) == ["ALERT 12:00", "normal again 12:01"]
    assert said_of(alarm, (0, 0.8), (1, 0.3)) == []
    assert said_of(alarm, (0, 0.4), (1, 0.9)) == ["ALERT 12:01"]
    assert said_of(alarm, (0, 0.9), (1, 0.9)) == []


def test_alarm_while_it_lasts_no_minute_is_said_twice() -> None:
    alarm = Alarm(Band(), LATE)
    assert said_of(alarm, (0, 0.1), (1, 0.9), (2, 0.9)) == ["ALERT 12:01"]
    assert said_of(alarm, (0, 0.9), (1, 0.1), (2, 0.9)) == []  # older ones neither add to it nor end it
    assert said_of(alarm, (3, 0.1)) == ["normal again 12:03"]
    assert said_of(alarm, (0, 0.9), (1, 0.9), (2, 0.9), (3, 0.1)) == []


def test_alarm_newest_minute_to_and_fro_last_line_is_true() -> None:
    alarm = Alarm(Band(), LATE)
    assert said_of(alarm, (0, 0.9), (0, 0.1), (0, 0.9)) == [
        "ALERT 12:00",
        "normal again 12:00",
        "ALERT 12:00",
    ]


def test_alarm_minute_older_than_late_says_nothing() -> None:
    alarm = Alarm(Band(), LATE)
    assert said_of(alarm, (11, 0.1), (0, 0.9), (1, 0.9)) == ["ALERT 12:01"]


def test_alarm_after_restart_ends_where_it_was() -> None:
    hour = [(0, 0.9), (1, 0.1), (2, 0.9), (3, 0.9)]
    said = ["ALERT 12:00", "normal again 12:01", "ALERT 12:02"]
    alarm = Alarm(Band(), LATE)
    assert said_of(alarm, *hour) == said
    again = Alarm(Band(), LATE)
    assert said_of(again, *hour) == said
    assert said_of(again, *hour, (4, 0.1)) == ["normal again 12:04"]


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.4), (-0.1, 0.5), (0.0, 1.1), (float("nan"), 1.0)])
def test_band_bad_shares_refused(low: float, high: float) -> None:
    with pytest.raises(PurgatoryError, match=r"band must be two shares from 0 to 1, the lower first, got"):
        Band(low, high)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stream_killed_in_the_middle_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    for number in range(8):
        write(journal, rows_of(5 * number, 10 * number), f"f-{number:02}")
    command = [sys.executable, "-m", "aiopurgatory", "pipeline", "stream", str(journal), str(out)]
    command += ["--once", "--files", "1", "--late", "2 hours", "--master", "local[2]"]
    for batch in (1, 4):
        process = subprocess.Popen(command, start_new_session=True)
        wait_for(out / "checkpoint" / "offsets" / str(batch), process)
        os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM: in the middle of this batch
        process.wait()
    assert not (out / "checkpoint" / "commits" / "7").exists()
    subprocess.run(command, check=True)
    assertDataFrameEqual(table(spark, tmp_path), reported(spark, tmp_path), rtol=1e-9)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
