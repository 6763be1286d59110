"""The stages on a Spark Connect server, a process of its own on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import copy

import pyspark
import pytest
from private_servers import free_port

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.java import find_java
from aiopurgatory.pipeline.session import session

from .journals import NOON, expired, operation, snapshot, write
from .test_cluster import kill, report_of, wait_until

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
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
        spark.range(1).mapInArrow(sleep, "id long").collect()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as (address, _):
        yield address


@contextmanager
def connect_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a Spark Connect server with two cores; yield its address, and its process."""
    pytest.importorskip("grpc_status", reason='needs pip install "pyspark[connect]"')
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    home = str(Path(pyspark.__file__).parent)
    environment = os.environ | {
        "JAVA_HOME": str(Path(find_java()).resolve().parents[1]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [f"{home}/bin/spark-submit", "--class", SERVER, "--master", "local[2]", *options, "spark-internal"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until("the server listens", listens, process)
        yield f"sc://127.0.0.1:{port}", process
    finally:
        kill(process)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_connect_same_results_as_classic(server: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for day in range(2):
        at = NOON + timedelta(days=day)
        first = 10_000 * day
        keys = [operation(first + n, key=f"k{n % 9}", key_hash=n % 9, watched_at=at) for n in range(3000)]
        late = (expired(first + 3000 + n, watched_at=at) for n in range(50))
        path = write(journal, [*keys, *late], f"f-{day}", at=at)
        copy(path, path.with_name("again.parquet"))
        snapshots = [snapshot(at + timedelta(minutes=minute), checks=10 * minute + 100 * day) for minute in range(3)]
        write(journal, snapshots, table="statistics", at=at)
    outs = [tmp_path / "connect", tmp_path / "classic"]
    for out, master in zip(outs, (server, "local[2]"), strict=True):
        command = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(journal), str(out)]
        done = subprocess.run([*command, "--rows", "2000", "--master", master], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "6,100" in done.stdout
    for name in ("model.json", "advice.md", "report.html"):
        assert len({(out / name).read_text() for out in outs}) == 1, name
    assert report_of(outs[0]) == report_of(outs[1])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_connect_server_that_dies_in_a_job_says_so(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with connect_server(tmp_path) as (master, process):
        command = [sys.executable, "-c", SLEEPS, master, str(begun)]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_until("the job has begun", begun.exists, client)
            kill(process)
            said, errors = client.communicate()
        finally:
            client.kill()
    assert said.startswith(b"JobFailedError the Spark Connect server cannot be reached any more: start it, and ")
    assert said.count(b"\n") == 1
    assert errors == b""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_connect_stopped_while_the_server_is_silent_ends_at_once(tmp_path: Path, stop: signal.Signals) -> None:
    begun = tmp_path / "begun"
    with connect_server(tmp_path) as (master, process):
        client = subprocess.Popen([sys.executable, "-c", SLEEPS, master, str(begun)], stderr=subprocess.PIPE)
        try:
            wait_until("the job has begun", begun.exists, client)
            os.killpg(process.pid, signal.SIGSTOP)
            started = time.monotonic()
            client.send_signal(stop)
            client.communicate(timeout=60)
            assert time.monotonic() - started < 2
            assert client.returncode
        finally:
            client.kill()


def test_connect_server_that_is_not_there_says_so_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        made = session(f"sc://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PurgatoryError, match=r"master sc://.* cannot be reached: .*refused"), made:
            pass
