"""Spark in processes of its own on this machine: a standalone cluster, and a Connect server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from private_servers import free_port

import aiopurgatory
from aiopurgatory.pipeline.java import find_java

SPARK = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
JOB = "from aiopurgatory.cli import main\n\nraise SystemExit(main())\n"
#: A process that lives for less than a minute is not worth Java's second compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def environment() -> dict[str, str]:
    own = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": JAVA}
    java = str(Path(find_java()).resolve().parents[1])
    return os.environ | own | {"JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable}


def options(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(what: str, true: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    for _ in range(6000):
        if true():
            return
        assert process is None or process.poll() is None, f"it ended before {what}"
        time.sleep(0.05)
    pytest.fail(f"never: {what}")


class Cluster:
    """A master and two workers. Each is a process group of its own, in place of a machine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.log = stack.enter_context((folder / "log").open("wb"))
        self._daemon("master.Master", "--port", str(port), "--webui-port", str(self._page))
        self.workers = list[subprocess.Popen[bytes]]()

    def two_workers(self) -> Cluster:
        """Start the servers that are missing."""
        self.workers = [each for each in self.workers if each.poll() is None]
        place = "--webui-port", "0", "--work-dir", str(self._folder / "work")
        while len(self.workers) < 2:
            self.workers.append(self._daemon("worker.Worker", "--cores", "1", "--memory", "1g", *place, self.url))
        wait_until("two workers are there", lambda: self._alive() == 2)
        return self

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        words = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        process = subprocess.Popen(
            [*words, *arguments], env=environment(), start_new_session=True, stdout=self.log, stderr=self.log
        )
        self._stack.callback(kill, process)
        return process

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/") as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):  # it serves its page before its JSON
            return 0

    def executors(self) -> dict[int, subprocess.Popen[bytes]]:
        """Return the process ids of all executors, with their worker."""
        command = ["ps", "-e", "-ww", "-o", "pid=,pgid=,args="]
        lines = [line.split(None, 2) for line in subprocess.check_output(command, text=True).splitlines()]
        groups = {worker.pid: worker for worker in self.workers}
        return {int(pid): groups[int(group)] for pid, group, args in lines if int(group) in groups and EXECUTOR in args}

    @contextmanager
    def submitted(self, *arguments: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of the pipeline by spark-submit, with *more* settings."""
        job = self._folder / "job.py"
        job.write_text(JOB)
        package = shutil.make_archive(str(self._folder / "aiopurgatory"), "zip", Path(aiopurgatory.__file__).parents[1])
        own = SETTINGS | {f"spark.{name.replace('_', '.')}": value for name, value in more.items()}
        words = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *options(own), "--py-files", package]
        process = subprocess.Popen(
            [*words, str(job), "pipeline", *arguments], env=environment(), cwd=self._folder, stderr=self.log
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def connect_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a Spark Connect server; yield its address, and its process. A job that nobody awaits keeps its core."""
    pytest.importorskip("grpc_status", reason='needs pip install "pyspark[connect]"')
    port = free_port()
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    words = [str(SPARK / "bin" / "spark-submit"), "--class", server, "--master", "local[4]", *options(SETTINGS | own)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "spark-internal"], env=environment(), cwd=folder, stdout=log, stderr=log, start_new_session=True
        )

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until("the server listens", listens, process)
        yield f"sc://127.0.0.1:{port}", process
    finally:
        kill(process)
