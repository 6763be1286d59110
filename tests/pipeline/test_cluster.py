"""A real cluster on this machine: one master, two workers; one worker dies in the middle of a job."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from private_servers import free_port

import aiopurgatory
from aiopurgatory.pipeline.java import find_java

from .journals import NOON, operation, write

SPARK = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
JOB = "from aiopurgatory.cli import main\n\nraise SystemExit(main())\n"


class Cluster:
    """A master and two workers. Each is a process group of its own, in place of a machine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        port, self.page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.environment = os.environ | {
            "JAVA_HOME": str(Path(find_java()).resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_HOME": str(SPARK),
        }
        (folder / "local").mkdir()
        self.log = stack.enter_context((folder / "cluster.log").open("wb"))
        stack.enter_context(self.daemon("master.Master", "--port", str(port), "--webui-port", str(self.page)))
        worker = (
            "worker.Worker",
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(folder / "work"),
        )
        self.workers = [stack.enter_context(self.daemon(*worker, self.url)) for _ in range(2)]

    @contextmanager
    def daemon(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            str(SPARK / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        process = subprocess.Popen(
            command, env=self.environment, start_new_session=True, stdout=self.log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            kill(process)

    def alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/") as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):  # it serves its page before its JSON
            return 0

    def executors(self, number: int) -> list[int]:
        """Return the process ids of the executors of a worker."""
        command = ["ps", "-e", "-ww", "-o", "pid=,pgid=,args="]
        lines = [line.split(None, 2) for line in subprocess.check_output(command, text=True).splitlines()]
        own = [pid for pid, group, args in lines if int(group) == self.workers[number].pid and EXECUTOR in args]
        return [int(pid) for pid in own]

    def submit(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        job = self.folder / "job.py"
        job.write_text(JOB)
        package = shutil.make_archive(str(self.folder / "aiopurgatory"), "zip", Path(aiopurgatory.__file__).parents[1])
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
            **{f"spark.{name.replace('_', '.')}": value for name, value in more.items()},
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *options, "--py-files", package, str(job)]
        return subprocess.Popen([*command, *arguments], env=self.environment, cwd=self.folder, stderr=self.log)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


PLACES = """
import sys
import pyarrow as pa
from aiopurgatory.pipeline.session import session

def place(batches):
    import aiopurgatory
    for batch in batches:
        yield pa.record_batch({"place": [aiopurgatory.__file__] * len(batch)})

with session(sys.argv[1], settings={"spark.executor.memory": "512m"}) as spark:
    print(*{row.place for row in spark.range(4).mapInArrow(place, "place STRING").collect()})
"""


def wait_until(what: str, true: object, process: subprocess.Popen[bytes] | None = None) -> None:
    assert callable(true)
    for _ in range(6000):
        if true():
            return
        assert process is None or process.poll() is None, f"it ended before {what}"
        time.sleep(0.05)
    pytest.fail(f"never: {what}")


def rows_of(out: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the only report in a folder."""
    (folder,) = (out / "report").glob(f"*/{table}")
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def report_of(out: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of the report's days and hot keys."""
    found = {name: rows_of(out, name) for name in ("days", "hot_keys")}
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster_worker_killed_in_the_middle_same_result(tmp_path: Path) -> None:
    journal, noise = tmp_path / "journal", random.Random(1)
    for number in range(12):
        host = f"host-{number % 4}"  # the files of all hosts lie side by side
        rows = [
            operation(n, instance=host, key_hash=noise.getrandbits(16), watched_at=NOON)
            for n in range(number * 3000, number * 3000 + 3000)
        ]
        write(journal, rows, f"f-{number:02}")
    first = journal / "operations" / f"date={NOON:%Y-%m-%d}" / f"hour={NOON:%H}" / "f-00.parquet"
    shutil.copy(first, first.with_name("f-99.parquet"))
    (tmp_path / "cluster").mkdir()
    out, options = tmp_path / "out", ("--rows", "2000", "--ticks", "1", "--purge-intervals", "0")
    with ExitStack() as stack:
        cluster = Cluster(tmp_path / "cluster", stack)
        wait_until("two workers are there", lambda: cluster.alive() == 2)
        job = cluster.submit("pipeline", "run", str(journal), str(out), *options)
        stack.callback(job.kill)
        wait_until("sums are being written", lambda: list(out.glob("sums/*/*")), job)
        kill(cluster.workers[0])
        assert job.wait() == 0
        # Without spark-submit, the library is sent along.
        command = [sys.executable, "-c", PLACES, cluster.url]
        done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert all("aiopurgatory.zip" in place for place in done.stdout.split())
        missing = cluster.environment | {"PYSPARK_PYTHON": "/none/python3"}
        failed = subprocess.run(command, env=missing, capture_output=True, text=True)
        assert "/none/python3 is missing on a machine of the cluster" in failed.stderr
    assert (out / "advice.md").exists()
    here = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(journal), str(tmp_path / "here"), *options]
    subprocess.run([*here, "--master", "local[2]"], check=True, capture_output=True)
    assert report_of(out) == report_of(tmp_path / "here")
    for name in ("advice.md", "model.json"):
        assert (out / name).read_text() == (tmp_path / "here" / name).read_text()


def recorded(journal: Path) -> None:
    """Write 12 files of 3,000 rows, one of them twice."""
    noise = random.Random(2)
    for number in range(12):
        rows = [operation(3000 * number + n, key_hash=noise.getrandbits(12)) for n in range(3000)]
        for copy in range(1 + (number == 11)):
            write(journal, rows, f"f-{number:02}-{copy}")


def has_files(folder: Path) -> bool:
    return bool(list(folder.glob("*/*")))


def totals_of(out: Path) -> set[float]:
    """Sum the operations of the tables of the report that have all."""
    return {sum(row["operations"] for row in rows_of(out, name)) for name in ("minutes", "days")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster_executors_killed_in_ingest_and_in_report_totals_exact(tmp_path: Path) -> None:
    recorded(tmp_path / "journal")
    (tmp_path / "cluster").mkdir()
    out, whole = tmp_path / "out", str(tmp_path / "journal")
    with ExitStack() as stack:
        cluster = Cluster(tmp_path / "cluster", stack)
        wait_until("two workers are there", lambda: cluster.alive() == 2)
        for words, folder in ((("ingest", whole, str(out)), "sums"), (("report", str(out)), "report")):
            job = cluster.submit("pipeline", *words, speculation="true")
            stack.callback(job.kill)
            wait_until("tables are being written", partial(has_files, out / folder), job)
            wait_until("there is an executor", lambda: cluster.executors(0) or cluster.executors(1), job)
            killed = (cluster.executors(0) + cluster.executors(1))[0]
            os.kill(killed, signal.SIGKILL)
            assert job.wait() == 0
    assert totals_of(out) == {36_000.0}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster_two_drivers_at_once_totals_exact(tmp_path: Path) -> None:
    recorded(tmp_path / "journal")
    (tmp_path / "cluster").mkdir()
    out, words = tmp_path / "out", ("ingest", "--max-files", "4", str(tmp_path / "journal"))
    with ExitStack() as stack:
        cluster = Cluster(tmp_path / "cluster", stack)
        wait_until("two workers are there", lambda: cluster.alive() == 2)
        both = [cluster.submit("pipeline", *words, str(out), speculation="true", cores_max="1") for _ in range(2)]
        for job in both:
            stack.callback(job.kill)
        assert [job.wait() for job in both] == [0, 0]
        assert cluster.submit("pipeline", "report", str(out)).wait() == 0
    assert totals_of(out) == {36_000.0}
