"""A failure on Spark is one line with its remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.pipeline.failures import JobFailedError, explain, plain_errors

from .journals import operation, write


def failed(job: Callable[[], object]) -> str:
    """Return the error of *job*."""
    with pytest.raises(JobFailedError) as caught, plain_errors():
        job()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line


def worker(spark: SparkSession, code: str) -> Callable[[], object]:
    """Run *code* in a Python worker."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            exec(code)
            yield batch

    return lambda: spark.range(1).mapInArrow(each, "id long").collect()


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
def test_worker_fails_says_why(spark: SparkSession, code: str, line: str) -> None:
    assert failed(worker(spark, code)).startswith(line)


def test_whole_trace_is_kept_and_named(spark: SparkSession) -> None:
    found = re.search(r"\(full traceback: (.+)\)$", failed(worker(spark, "1 / 0")))
    assert found is not None
    trace = Path(found[1])
    assert "ZeroDivisionError: division by zero" in trace.read_text()
    trace.unlink()


def test_plain_errors_own_error_passes() -> None:
    with pytest.raises(PurgatoryError, match=r"^as it is$"), plain_errors():
        raise PurgatoryError("as it is")


def test_java_fails_says_the_deepest_cause(spark: SparkSession) -> None:
    line = failed(lambda: spark.sql("SELECT id / 0 FROM range(1)").collect())
    assert "DIVIDE_BY_ZERO" in line
    assert "\tat" not in line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Error while sending", "Java died, probably because memory ran out: "),  # it depends on when Java dies
        ("Error while receiving", "Java died, probably because memory ran out: "),
        ("Error while sending or receiving", "Java died, probably because memory ran out: "),
        (
            'java.io.IOException: Cannot run program "/opt/python3.12": error=2, No such file or directory',
            "/opt/python3.12 is missing on a machine of the cluster: install it there, or set PYSPARK_PYTHON",
        ),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has", "the cluster's Python has another version"),
        ("StatusCode.UNAVAILABLE", "the Spark Connect server cannot be reached any more"),
    ],
)
def test_explain_has_the_cause_and_the_remedy(said: str, line: str) -> None:
    assert explain(RuntimeError(said)).startswith(line)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("a disk of 2 MB could not be mounted: that takes root, and a container that allows mount(2)")
    yield small
    subprocess.run(["umount", "--lazy", small], check=True)


def test_full_disk_says_so(spark: SparkSession, small_disk: Path) -> None:
    line = failed(lambda: spark.range(2_000_000).selectExpr("uuid()").write.parquet(f"{small_disk}/table"))
    assert line.startswith("no space left on device: free some on the disk of the results")


@pytest.mark.slow
def test_full_disk_ingest_says_so_without_a_traceback(tmp_path: Path, small_disk: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 40_000).tolist()
    for file in range(4):
        rows = [operation(file * 40_000 + n, key_hash=each, key=f"{each}") for n, each in enumerate(numbers)]
        write(tmp_path / "journal", rows, f"f-{file}")
    (small_disk / "fill").write_bytes(bytes(1_500_000))
    command = [sys.executable, "-m", "aiopurgatory", "pipeline", "ingest", f"{tmp_path}/journal", f"{small_disk}/out"]
    done = subprocess.run([*command, "--master", "local[2]"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("aiopurgatory pipeline ingest: no space left on device: free some on the disk of")
    assert done.stderr.count("\n") == 1
    (small_disk / "fill").unlink()


HUNGRY = """
import logging
logging.getLogger().addHandler(logging.NullHandler())  # as the command does, or py4j logs a trace on stderr
from aiopurgatory.pipeline.session import session
try:
    with session("local[1]", memory="512m") as spark:
        spark.range(1).selectExpr("length(repeat(uuid(), 50000000))").collect()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_java_without_memory_says_so(tmp_path: Path) -> None:
    known = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", HUNGRY], env=known, capture_output=True, text=True)
    assert done.stdout.startswith("JobFailedError Java ")
    assert "--memory" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    (trace,) = tmp_path.iterdir()
    assert trace.name.startswith("aiopurgatory-error-")
