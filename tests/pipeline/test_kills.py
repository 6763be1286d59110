"""Two ingests into one folder are killed again and again: a reader sees whole versions only."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aiopurgatory.pipeline.cleaning import versions
from aiopurgatory.pipeline.cleaning.journal_tables import OPERATIONS

from .journals import NOON, operation, snapshot, write

KILLS = 50
ROWS = 24_000
#: Ingests for ever; a loser of a race begins again.
WRITER = """
import sys
from pathlib import Path
from aiopurgatory.pipeline.cleaning.versions import LostRaceError
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.spark.session import session

journal, out = sys.argv[1:]
with session("writer", scratch=Path(out, "scratch"), master="local[1]", memory="512m") as spark:
    print("ready", flush=True)
    while True:
        try:
            ingest(spark, journal, out)
        except LostRaceError:
            print("lost", flush=True)
        else:
            print("won", flush=True)
"""


def killed_again_and_again(folder: Path, luck: random.Random, said: list[str]) -> None:
    """Start writers and kill them, Python and JVM, at random times: KILLS / 2 times."""
    command = [sys.executable, "-c", WRITER, str(folder / "journal"), str(folder / "out")]
    for _ in range(KILLS // 2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True)
        assert process.stdout is not None
        said.append(process.stdout.readline().strip())
        time.sleep(luck.uniform(0.0, 14.0))  # the first version of a process is there after some 6 s
        os.killpg(process.pid, signal.SIGKILL)
        said += process.communicate()[0].split()


def read(out: Path) -> tuple[int, list[int]]:
    """Return the newest version and its sequence numbers, read through the manifest, without Spark."""
    manifest = versions.current(str(out))
    files = manifest.files(str(out), OPERATIONS.name)
    found = [pq.read_table(file, columns=["sequence"], partitioning=None)["sequence"] for file in files]
    return manifest.number, sorted(number for each in found for number in each.to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ingest_killed_again_and_again_every_version_is_whole(tmp_path: Path) -> None:
    for day in range(3):
        for file in range(4):
            first = (4 * day + file) * ROWS // 12
            rows = [operation(n, watched_at=NOON + timedelta(days=day)) for n in range(first, first + ROWS // 12)]
            write(tmp_path / "journal", rows, f"f-{file}", at=NOON + timedelta(days=day))
    write(tmp_path / "journal", [snapshot()], table="statistics")
    out, expected = tmp_path / "out", list(range(ROWS))
    said, reads, versions_read = list[str](), 0, set[int]()
    threads = [
        threading.Thread(target=killed_again_and_again, args=(tmp_path, random.Random(seed), said)) for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        number, found = read(out)
        assert found == (expected if number else [])
        reads, versions_read = reads + 1, versions_read | {number}
        time.sleep(0.02)
    counts = [said.count(each) for each in ("ready", "won", "lost")]
    print("{} kills, {} versions, {} races lost, {} reads".format(*counts, reads))
    assert said.count("ready") == KILLS
    assert said.count("won") > 10
    assert len(versions_read) > 5
