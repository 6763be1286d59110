"""Two ingests into one folder are killed again and again: readers see whole batches only, and no row twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.attempts import EVERY, committed, sums
from aiopurgatory.pipeline.ingest import Counts, ingest

from .journals import NOON, operation, write

KILLS = 50
FILES, ROWS_PER_FILE = 60, 400
#: Takes in one file at a time.
WRITER = """
import sys
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.session import session

with session("local[1]", memory="512m") as spark:
    print("ready", flush=True)
    ingest(spark, *sys.argv[1:], max_files=1)
    print("done", flush=True)
"""


def started(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder / "journal"), str(folder / "out")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True)


def killed_again_and_again(folder: Path, luck: random.Random, longest: Callable[[], float], said: list[str]) -> None:
    """Start writers and kill them, Python and JVM, at random times up to *longest()*: KILLS / 2 times."""
    for _ in range(KILLS // 2):
        process = started(folder)
        assert process.stdout is not None
        said.append(process.stdout.readline().strip())
        time.sleep(luck.uniform(0.0, longest()))
        os.killpg(process.pid, signal.SIGKILL)
        said += process.communicate()[0].split()


def first_batch(folder: Path) -> float:
    """Return how many seconds a writer needs for its first batch."""
    process = started(folder)
    assert process.stdout is not None
    process.stdout.readline()
    begun = time.monotonic()
    while not list(folder.glob("out/sums/1.*/files/part*")):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ingest_killed_again_and_again_every_row_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(FILES):
        at = NOON + timedelta(hours=number)
        first = max(0, number * ROWS_PER_FILE - 10)  # repeats ten rows of the file before
        rows = [operation(n, watched_at=at) for n in range(first, (number + 1) * ROWS_PER_FILE)]
        write(tmp_path / "journal", rows, f"f-{number}", at=at)
    out, said = str(tmp_path / "out"), list[str]()
    alone, begun, counted, reads = first_batch(tmp_path), time.monotonic(), {0.0}, 0

    def longest() -> float:  # a busy machine has fewer batches: then writers live longer
        return max(3 * alone, (time.monotonic() - begun) / len(counted))

    threads = [
        threading.Thread(target=killed_again_and_again, args=(tmp_path, random.Random(seed), longest, said))
        for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        line = committed(spark, out)
        found = sums(spark, out, "activity", line).selectExpr("coalesce(sum(operations), 0) AS n").collect()[0].n
        newest = line[-1].number if line else 0
        assert found == (newest - newest // EVERY) * ROWS_PER_FILE  # one in EVERY repeats those before, and has no file
        counted.add(found)
        reads += 1
        time.sleep(0.2)
    print(
        f"{said.count('ready')} starts, {said.count('done')} ends, {len(committed(spark, out))} batches, {reads} reads"
    )
    assert said.count("ready") == KILLS
    assert len(counted) > 6
    counts = ingest(spark, str(tmp_path / "journal"), out)["operations"]
    files = sums(spark, out, "files").collect()
    assert len({row.path for row in files}) == len(files) == FILES
    for name in ("activity", "hours", "keys", "daily"):
        assert sum(row.operations for row in sums(spark, out, name).collect()) == FILES * ROWS_PER_FILE
    assert ingest(spark, str(tmp_path / "journal"), out)["operations"] == Counts()
    assert counts.counted == counts.files * ROWS_PER_FILE
