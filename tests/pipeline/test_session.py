"""The local session does not depend on the shell, the locale or the machine's name; it ends at once, with its JVM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.session import session

#: Runs a Python worker, writes and reads a table with a name beyond ASCII, and reads times.
JOB = """
import sys
from pathlib import Path
from aiopurgatory.pipeline.session import session

with session("local[2]") as spark:
    folder = sys.argv[1] + "/é %41 [b]"
    spark.range(3).mapInArrow(lambda batches: batches, "id long").write.parquet(folder)
    noon = spark.sql("SELECT CAST(TIMESTAMP '2026-11-21 12:00:00' AS LONG) AS noon").first().noon
    print(spark.read.parquet(folder.replace("[", "\\\\[").replace("]", "\\\\]")).count(), noon, spark.version[:3])
"""
SAID = "3 1795262400 4.3\n"


def job(folder: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run JOB with more variables in its *environment*."""
    known = os.environ | environment
    script = folder / "job.py"
    script.write_text(JOB, encoding="utf-8")
    command = [*before, sys.executable, str(script), str(folder)]
    return subprocess.run(command, env=known, cwd=folder, capture_output=True, text=True, timeout=120)


def test_session_is_in_utc_and_few_partitions(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_session_java_has_room_for_the_code_of_many_runs(spark: SparkSession) -> None:
    """Some 70 MB in 25 runs. Java's own choice for one compiler is 48 MB, and when it is full, queries fail."""
    assert spark._jvm is not None
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage().getMax() for pool in pools if "Code" in pool.getName()]
    assert sum(code) >= 200_000_000


@pytest.mark.slow
def test_session_shell_of_another_spark_does_not_count(tmp_path: Path) -> None:
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    lines = ("eventLog.enabled true", "eventLog.dir file:/none", "task.cpus 99", "jars.packages no.such:package:1")
    defaults.write_text("".join(f"spark.{line}\n" for line in lines))
    done = job(
        tmp_path,
        SPARK_HOME=str(tmp_path / "none"),
        SPARK_CONF_DIR=str(defaults.parent),
        SPARK_REMOTE="sc://127.0.0.1:1",
        SPARK_MASTER="yarn",
        SPARK_LOCAL_DIRS="/none",
        PYSPARK_SUBMIT_ARGS="--master yarn pyspark-shell",
        PYSPARK_PYTHON="/none/python2.7",
        PYSPARK_DRIVER_PYTHON="/none/python2.7",
        TZ="Asia/Kolkata",
    )
    assert done.stdout + done.stderr == SAID


@pytest.mark.slow
def test_session_spark_home_of_another_version_does_not_count(tmp_path: Path) -> None:
    other = tmp_path / "spark-3.5"
    for name in ("spark-submit", "spark-class", "load-spark-env.sh"):
        path = other / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho another Spark >&2\nexit 1\n")
        path.chmod(0o755)
    (other / "jars").mkdir()
    (other / "conf").mkdir()
    (other / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n")
    done = job(tmp_path, SPARK_HOME=str(other), PATH=f"{other}/bin:{os.environ['PATH']}")
    assert done.stdout + done.stderr == SAID


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk on which nothing can be executed."""
    place = tmp_path / "noexec"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=64m", "none", place], capture_output=True).returncode:
        pytest.skip("a noexec disk could not be mounted: that takes root, and a container that allows mount(2)")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.slow
def test_session_noexec_disk_nameless_host_latin_locale_works(disk: Path) -> None:
    nameless = ("unshare", "--uts", "sh", "-c", 'hostname no.such.host.invalid && exec "$@"', "sh")
    done = job(disk, *nameless, LC_ALL="de_DE.ISO-8859-1", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    if "unshare failed" in done.stderr:
        pytest.skip("the machine could not get another name: that takes root, and a container that allows unshare(2)")
    assert done.stdout + done.stderr == SAID


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_session_master_that_is_not_there_says_so_soon(scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        master = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(PurgatoryError, match=f"master {master} cannot be reached: .*refused"), session(master):
            pass
    assert time.monotonic() - begun < 10


STOPPED = """
import sys
import time
from aiopurgatory.pipeline.session import session

begun = sys.argv[1]

def sleep(batches):
    open(begun, "w").close()
    time.sleep(600)
    yield from batches

with session("local[2]") as spark:
    print(spark.sparkContext.applicationId, flush=True)
    if sys.argv[2] == "in a job":
        spark.range(1).mapInArrow(sleep, "id long").collect()
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
@pytest.mark.parametrize("when", ["in a job", "between jobs"])
def test_session_stopped_ends_soon_and_leaves_no_jvm(
    tmp_path: Path, number: signal.Signals, status: int, when: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "begun"), when]
    known = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        until = time.monotonic() + 60
        while when == "in a job" and not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        (java,) = children_of(running.pid)
        begun = time.monotonic()
        running.send_signal(number)
        _, said = running.communicate(timeout=30)
        took = time.monotonic() - begun
    assert running.returncode == status
    assert "Py4J" not in said
    assert took < 20.0  # a second on an idle machine; its job would take minutes
    assert not Path("/proc", str(java), "exe").exists()
    assert not list(temporary.iterdir())


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(each) for each in found.split()]


@pytest.mark.slow
def test_session_killed_takes_its_jvm_along(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "begun"), "between jobs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        (java,) = children_of(running.pid)
        running.kill()
    until = time.monotonic() + 20
    while Path("/proc", str(java)).exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path("/proc", str(java)).exists()
