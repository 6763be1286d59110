"""A failure on Spark is one line with its remedy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.spark.failures import TRACE, JobFailedError, plain_errors
from aiopurgatory.pipeline.spark.tasks import Spark


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


def test_full_disk_says_so(spark: Spark, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk takes root and mount")
    try:
        line = failed(small, lambda: spark().range(2_000_000).selectExpr("uuid()").write.parquet(f"{small}/table"))
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
    assert line == f"no space left on device: free some on the disk of {small}, and run it again"


HUNGRY = """
import logging, sys
logging.getLogger().addHandler(logging.NullHandler())  # as the command does, or py4j logs a trace on stderr
from aiopurgatory.pipeline.spark.session import session
try:
    with session("hungry", scratch=sys.argv[1], master="local[1]", class_archive=False) as spark:
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
