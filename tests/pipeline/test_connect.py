"""The stages on a Spark Connect server, a process of its own on this machine."""

from __future__ import annotations

import os
import random
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

import pytest
from pyspark.find_spark_home import _find_spark_home

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.page.reading import read
from aiopurgatory.pipeline.spark.java import find_java
from aiopurgatory.pipeline.spark.session import session

from .journals import NOON, clean_table, expired, operation, snapshot, write
from .test_cluster import free_port, kill, wait_until

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
WORKERS = """
import math, sys
import aiopurgatory
from aiopurgatory.pipeline.spark.session import session
from aiopurgatory.pipeline.spark.tasks import spread

def place(_):
    return aiopurgatory.__file__

with session("workers", scratch=sys.argv[2], master=sys.argv[1]) as spark:
    print(*spread(lambda: spark, place, [1, 2]))
    try:
        with session("fails", scratch=sys.argv[2], master=sys.argv[1]) as other:
            spread(lambda: other, math.sqrt, [1.0, -1.0])
    except Exception as error:
        print(type(error).__name__, error)
    print(spread(lambda: spark, math.sqrt, [1.0, 4.0]))
"""

DIES = """
import logging, sys, time
logging.getLogger().addHandler(logging.NullHandler())  # as the command does
from pathlib import Path
from aiopurgatory.pipeline.spark.session import session
from aiopurgatory.pipeline.spark.tasks import spread

def long(_):
    Path(folder, "begun").touch()
    time.sleep(600)

master, folder = sys.argv[1:]
try:
    with session("dies", scratch=folder, master=master) as spark:
        spread(lambda: spark, long, [1, 2])
except Exception as error:
    print(type(error).__name__, error)
"""

INTERRUPTED = """
import sys, time
from pathlib import Path
from aiopurgatory.cli import main
from aiopurgatory.pipeline.cleaning import table_run

def long(files, job):
    Path(job.folder).parents[2].joinpath("begun").touch()
    time.sleep(600)

table_run.clean, table_run._AT_HOME, table_run._LEAST_PER_TASK = long, 0, 1
sys.exit(main())
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
    home = _find_spark_home()
    environment = os.environ | {
        "JAVA_HOME": find_java().home,
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
    journal, noise = tmp_path / "journal", random.Random(1)
    for day in range(2):
        at = NOON + timedelta(days=day)
        first = 10_000 * day
        names = (f"k{n % 9}-{noise.randbytes(1200).hex()}" for n in range(3000))  # so that it takes several tasks
        keys = [operation(first + n, key=key, key_hash=n % 9, watched_at=at) for n, key in enumerate(names)]
        path = write(
            journal, [*keys, *(expired(first + 3000 + n, watched_at=at) for n in range(50))], f"f-{day}", at=at
        )
        copy(path, path.with_name("again.parquet"))
        snapshots = [snapshot(at + timedelta(minutes=minute), checks=10 * minute + 100 * day) for minute in range(3)]
        write(journal, snapshots, table="statistics", at=at)
    outs = [tmp_path / "connect", tmp_path / "classic"]
    for out, master in zip(outs, (server, "local[2]"), strict=True):
        command = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(journal), str(out)]
        done = subprocess.run([*command, "--rows", "2000", "--master", master], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "6,100 clean, 6,100 duplicates" in done.stdout
    for name in ("model.json", "advice.md", "report/report.html"):
        assert len({(out / name).read_text() for out in outs}) == 1, name
    for table in ("minutes", "days", "hot_keys", "work", "lost", "settings"):
        one, other = (read(str(out / "report"), table) for out in outs)
        assert one.equals(other), table
    one, other = (clean_table(out / "clean").sort_by("sequence") for out in outs)
    assert one.equals(other)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_connect_workers_get_the_library_and_fail_plainly(server: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKERS, server, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    places, failed, later = done.stdout.splitlines()
    assert all("aiopurgatory.zip" in place for place in places.split())
    assert failed == f"JobFailedError math domain error (full traceback: {tmp_path}/error.log)"
    assert later == "[1.0, 2.0]"  # a session that ends does not stop the server, nor other sessions
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_connect_server_that_dies_in_a_job_says_so(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with connect_server(tmp_path) as (master, process):
        command = [sys.executable, "-c", DIES, master, str(tmp_path)]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_until("the job has begun", begun.exists, client)
            kill(process)
            said, errors = client.communicate()
        finally:
            client.kill()
    assert said.startswith(b"JobFailedError the Spark Connect server cannot be reached any more: start it again, and ")
    assert said.count(b"\n") == 1
    assert errors == b""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("away", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "silent"])
def test_connect_stopped_while_the_server_is_away_ends_at_once(
    tmp_path: Path, away: signal.Signals, stop: signal.Signals
) -> None:
    for number in range(2):
        write(tmp_path / "journal", [operation(number)], f"f-{number}")
    with connect_server(tmp_path) as (master, process):
        command = [sys.executable, "-c", INTERRUPTED, "pipeline", "ingest", str(tmp_path / "journal")]
        client = subprocess.Popen([*command, str(tmp_path / "out"), "--master", master], stderr=subprocess.PIPE)
        try:
            wait_until("the job has begun", (tmp_path / "begun").exists, client)
            os.killpg(process.pid, away)
            time.sleep(1)
            client.send_signal(stop)
            begun = time.monotonic()
            errors = client.communicate()[1]
            took = time.monotonic() - begun
        finally:
            client.kill()
    assert (client.returncode, errors) == (128 + stop, b"")
    assert took < 5
    assert not list((tmp_path / "out").glob(".spark-*"))
    assert not list((tmp_path / "out" / "versions").glob("*"))


def test_connect_server_that_is_not_there_says_so_soon(tmp_path: Path) -> None:
    master = f"sc://127.0.0.1:{free_port()}/;user_id=me"
    made = session("nobody", scratch=tmp_path, master=master)
    with pytest.raises(PurgatoryError, match=f"^master {master} cannot be reached: .*refused"), made:
        pass


def test_connect_missing_package_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    # Without it, as in a worker of pytest-xdist, pyspark takes the process for one that runs doctests, and ends it.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = session("nobody", scratch=tmp_path, master=f"sc://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PurgatoryError, match=r'pip install "pyspark\[connect\]".*grpcio'), made:
            pass
