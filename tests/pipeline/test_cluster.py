"""The pipeline on a cluster whose executors and workers are killed, and on a Spark Connect server.

The tests share a cluster, a server, and a run on this machine to compare with: to start one takes longer than a test.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.pipeline.attempts import sums
from aiopurgatory.pipeline.run import run_all
from aiopurgatory.pipeline.simulate import grid

from .clusters import SETTINGS, Cluster, connect_server, environment, kill, options, wait_until
from .journals import NOON, expired, operation, snapshot, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 36_000
RUN = ("--rows", "2000", "--ticks", "1", "--wheel-sizes", "20", "--purge-intervals", "0")


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal, and the results of a run on this machine."""
    folder = tmp_path_factory.mktemp("here")
    recorded(folder / "journal")
    run_all(spark, str(folder / "journal"), str(folder / "out"), rows=2_000, settings=grid([1.0], [20], [0]))
    return folder


def recorded(journal: Path) -> None:
    """Write a dozen files of four hosts, which lie side by side, on two days. One file is there twice."""
    noise = random.Random(1)
    for number in range(12):
        at, first = NOON + timedelta(days=number % 2), number * ROWS // 12
        rows = []
        for n in range(first, first + ROWS // 12):
            key, end = noise.getrandbits(12), expired if n % 60 == 0 else operation
            rows.append(end(n, instance=f"host-{number % 4}", key=f"k{key}", key_hash=key, watched_at=at))
        path = write(journal, rows, f"f-{number:02}", at=at)
    shutil.copy(path, path.with_name("again.parquet"))
    for day in range(2):
        at = NOON + timedelta(days=day)
        snapshots = [snapshot(at + timedelta(minutes=minute), checks=10 * minute + 100 * day) for minute in range(3)]
        write(journal, snapshots, table="statistics", at=at)


def report_of(out: Path) -> dict[str, list[str]]:
    """The rows of all tables of the only report in a folder."""
    tables = {path.name: pq.read_table(path) for path in out.glob("report/*/*") if path.name != "files"}
    return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}


def require_same_results(out: Path, here: Path) -> None:
    assert report_of(out) == report_of(here / "out")
    for name in ("model.json", "advice.md", "report.html"):
        assert (out / name).read_text() == (here / "out" / name).read_text(), name


# A standalone cluster


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@pytest.fixture
def cluster(master: Cluster) -> Cluster:
    return master.two_workers()


def test_cluster_executor_and_worker_killed_same_results(cluster: Cluster, here: Path, tmp_path: Path) -> None:
    with cluster.submitted("run", str(here / "journal"), str(tmp_path), *RUN, speculation="true") as job:
        wait_until("sums are being written", lambda: list(tmp_path.glob("sums/*/*")) and cluster.executors(), job)
        os.kill(min(cluster.executors()), signal.SIGKILL)
        wait_until("a report is being written", lambda: list(tmp_path.glob("report/*/*")) and cluster.executors(), job)
        kill(min(cluster.executors().items())[1])
        assert job.wait() == 0
    require_same_results(tmp_path, here)


def test_cluster_two_drivers_at_once_totals_exact(
    cluster: Cluster, here: Path, spark: SparkSession, tmp_path: Path
) -> None:
    words = "ingest", "--max-files", "5", str(here / "journal"), str(tmp_path)
    with (
        cluster.submitted(*words, speculation="true", cores_max="1") as one,
        cluster.submitted(*words, speculation="true", cores_max="1") as other,
    ):
        assert [one.wait(), other.wait()] == [0, 0]
    for name in ("activity", "hours", "keys"):
        assert sums(spark, str(tmp_path), name).agg({"operations": "sum"}).head() == (ROWS,)


PLACES = """
import os
import sys
import pyarrow as pa
from aiopurgatory.pipeline.session import session

def place(batches):
    import aiopurgatory
    for batch in batches:
        yield pa.record_batch({"place": [aiopurgatory.__file__] * len(batch)})

def places():
    with session(sys.argv[1], settings=dict(each.split("=", 1) for each in sys.argv[2:])) as spark:
        print(*{row.place for row in spark.range(4).mapInArrow(place, "place STRING").collect()})

places()
os.environ["PYSPARK_PYTHON"] = "/none/python3"
places()
"""


def test_cluster_gets_the_library_and_a_missing_python_is_named(cluster: Cluster) -> None:
    words = [sys.executable, "-c", PLACES, cluster.url, *options(SETTINGS)[1::2]]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.stdout, done.stderr
    assert all("aiopurgatory.zip" in place for place in done.stdout.split())
    assert "/none/python3 is missing on a machine of the cluster" in done.stderr


# A Spark Connect server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with connect_server(tmp_path_factory.mktemp("server")) as made:
        yield made


def test_connect_same_results_as_here(server: tuple[str, subprocess.Popen[bytes]], here: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(here / "journal"), str(tmp_path), *RUN]
    done = subprocess.run([*words, "--master", server[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert f"{ROWS:,} counted, 3,000 duplicates, 0 quarantined" in done.stdout
    require_same_results(tmp_path, here)


SLEEPS = """
import logging, sys, time
logging.getLogger().addHandler(logging.NullHandler())  # as the command does
from pathlib import Path
from aiopurgatory.pipeline.session import session

begun = sys.argv[2]

def sleep(batches):
    Path(begun).touch()
    time.sleep(600)
    yield from batches

try:
    with session(sys.argv[1]) as spark:
        spark.range(0, 1, 1, 1).mapInArrow(sleep, "id long").collect()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def sleeper(server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A client whose job on the server has begun, and lasts."""
    words = [sys.executable, "-c", SLEEPS, server[0], str(tmp_path / "begun")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        try:
            wait_until("the job has begun", (tmp_path / "begun").exists, client)
            yield client
        finally:
            client.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_connect_stopped_while_the_server_is_silent_ends_at_once(
    server: tuple[str, subprocess.Popen[bytes]], sleeper: subprocess.Popen[bytes], stop: signal.Signals
) -> None:
    os.killpg(server[1].pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        sleeper.send_signal(stop)
        sleeper.communicate(timeout=60)
        assert time.monotonic() - begun < 20
        assert sleeper.returncode
    finally:
        os.killpg(server[1].pid, signal.SIGCONT)


def test_connect_server_that_dies_in_a_job_says_so(
    server: tuple[str, subprocess.Popen[bytes]], sleeper: subprocess.Popen[bytes]
) -> None:
    kill(server[1])  # so this is the last test of the server
    said, errors = sleeper.communicate()
    assert said.startswith(b"JobFailedError the Spark Connect server cannot be reached any more: start it, and ")
    assert said.count(b"\n") == 1
    assert errors == b""
