"""A failure on Spark is one line with its remedy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.spark.failures import TRACE, JobFailedError, plain_errors
from aiopurgatory.pipeline.spark.tasks import Spark

from .journals import operation, write


def failed(out: Path, job: Callable[[], object]) -> str:
    """Return the last line of *job*."""
    with pytest.raises(JobFailedError) as caught, plain_errors(out):
        job()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line


def worker(spark: Spark, code: str) -> Callable[[], object]:
    """Run *code* in a Python worker."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            exec(code)
            yield batch

    return lambda: spark().range(1).mapInArrow(each, "id long").collect()


REFUSE = "from aiopurgatory.errors import PurgatoryError\nraise PurgatoryError('timeout must be > 0 s, got -1')"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (REFUSE, "timeout must be > 0 s, got -1 "),
        ("raise ValueError('tick must be > 0 s, got 0')", "tick must be > 0 s, got 0 "),
        ("1 / 0", "ZeroDivisionError: division by zero "),
        ("raise MemoryError", "a Python worker died, probably because memory ran out"),
        ("import os; os._exit(1)", "a Python worker died, probably because memory ran out"),
        ("raise OSError(28, 'No space left on device')", "no space left on device: free some on the disk of"),
    ],
)
def test_worker_fails_says_why(spark: Spark, tmp_path: Path, code: str, line: str) -> None:
    assert failed(tmp_path, worker(spark, code)).startswith(line)


def test_whole_trace_is_kept_and_named(spark: Spark, tmp_path: Path) -> None:
    line = failed(tmp_path, worker(spark, "1 / 0"))
    assert line.endswith(f"(full traceback: {tmp_path / TRACE})")
    trace = (tmp_path / TRACE).read_text()
    assert "ZeroDivisionError: division by zero" in trace


def test_plain_errors_own_error_passes(tmp_path: Path) -> None:
    with pytest.raises(PurgatoryError, match=r"^as it is$"), plain_errors(tmp_path):
        raise PurgatoryError("as it is")
    assert not (tmp_path / TRACE).exists()


def test_java_fails_says_the_deepest_cause(spark: Spark, tmp_path: Path) -> None:
    line = failed(tmp_path, lambda: spark().sql("SELECT id / 0 FROM range(1)").collect())
    assert "DIVIDE_BY_ZERO" in line
    assert "\tat" not in line


@pytest.mark.parametrize("call", ["sending", "receiving", "sending or receiving"])  # it depends on when Java dies
def test_java_dies_in_a_call_says_so(tmp_path: Path, call: str) -> None:
    def job() -> None:
        raise Py4JNetworkError(f"Error while {call}", ConnectionResetError(104, "Connection reset by peer"))

    assert failed(tmp_path, job).startswith("Java died, probably because memory ran out: ")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk takes root and mount")
    yield small
    subprocess.run(["umount", "--lazy", small], check=True)


def test_full_disk_says_so(spark: Spark, small_disk: Path) -> None:
    table = f"{small_disk}/table"
    line = failed(small_disk, lambda: spark().range(2_000_000).selectExpr("uuid()").write.parquet(table))
    assert line == f"no space left on device: free some on the disk of {small_disk}, and run it again"


#: The command without the rule that a full disk is one line.
WITHOUT_RULE = """
import sys
from aiopurgatory.cli import main
from aiopurgatory.pipeline.spark import failures
failures.explain = lambda error, out: str(error)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("tasks", ["one task", "tasks on Spark"])
@pytest.mark.parametrize("rule", [True, False], ids=["", "control"])
def test_full_disk_ingest_says_so_without_a_traceback(tmp_path: Path, small_disk: Path, tasks: str, rule: bool) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 40_000).tolist()
    for file in range(1 if tasks == "one task" else 16):
        rows = [operation(file * 40_000 + n, key_hash=each, key=f"{each}") for n, each in enumerate(numbers)]
        write(tmp_path / "journal", rows, f"f-{file}")
    (small_disk / "fill").write_bytes(bytes(1_000_000))
    program = ["-m", "aiopurgatory"] if rule else ["-c", WITHOUT_RULE]
    command = [sys.executable, *program, "pipeline", "ingest", f"{tmp_path}/journal", f"{small_disk}/out"]
    done = subprocess.run([*command, "--master", "local[2]"], capture_output=True, text=True)
    said = done.stderr.removesuffix("\n").removesuffix(f" (full traceback: {small_disk}/out/{TRACE})")
    why = f"no space left on device: free some on the disk of {small_disk}/out, and run it again"
    if rule:
        assert said == f"aiopurgatory pipeline ingest: {why}"
    else:
        assert why not in said
        assert ("Traceback" in said) == (tasks == "tasks on Spark")
    assert (done.returncode, done.stdout) == (1, "")


HUNGRY = """
import logging, sys
logging.getLogger().addHandler(logging.NullHandler())  # as the command does, or py4j logs a trace on stderr
from aiopurgatory.pipeline.spark.session import session
try:
    with session("hungry", scratch=sys.argv[1], master="local[1]") as spark:
        spark.range(1).selectExpr("length(repeat(uuid(), 50000000))").collect()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_java_without_memory_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HUNGRY, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.startswith("JobFailedError Java ")
    assert "memory" in done.stdout
    assert "--memory" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == [TRACE]
