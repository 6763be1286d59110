"""The pipeline's benchmark: its journal is a real one, and no CPU time is missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402
from pipelines.journals import Shape, make  # noqa: E402

from aiopurgatory import DelayedOperation, Purgatory  # noqa: E402
from aiopurgatory.journal import Journal  # noqa: E402

SHAPE = Shape(6_000, 1_000, span=600.0)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines") / "journal"
    make(folder, SHAPE)
    return folder


class Nothing(DelayedOperation[None]):
    def try_complete(self) -> bool:
        return self.force_complete()


async def test_make_writes_files_as_journal_does(tmp_path: Path, journal: Path) -> None:
    async with Journal(tmp_path) as real, Purgatory("fetch", observers=[real]) as purgatory:
        purgatory.watch(Nothing(1.0), ["key"])
    for name in ("operations", "statistics"):
        made, wanted = (pq.ParquetFile(next((each / name).rglob("*.parquet"))) for each in (journal, tmp_path))
        assert made.schema_arrow.equals(wanted.schema_arrow, check_metadata=True)
        for number in range(len(wanted.schema_arrow)):
            one, other = (file.metadata.row_group(0).column(number) for file in (made, wanted))
            assert (one.compression, set(one.encodings)) == (other.compression, set(other.encodings))


def printed_by(program: str) -> list[str]:
    """The words that *program* prints, in a process of its own: this one may have other children."""
    command = [sys.executable, "-c", program]
    folder = Path(__file__).parents[2] / "benchmarks"
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_run_tree_counts_grandchildren_that_outlive() -> None:
    """As the JVM does: nobody waits for it, and it works on when the process that started it has ended."""
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}]); print('started')"
    measure = (
        "import sys; from pathlib import Path; from pipelines.usage import run_tree;"
        f"ended = run_tree([sys.executable, '-W', 'ignore', '-c', {start!r}], folder=Path());"
        "print(ended.cpu, ended.output)"
    )
    found = printed_by(measure)
    assert float(found[0]) >= 0.5
    assert found[1] == "started"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_tree_counts_children_that_nobody_waits_for() -> None:
    """As the workers of Spark's daemon, which ignores SIGCHLD."""
    busy = "import time\nwhile time.process_time() < 0.7: pass\ntime.sleep(3)"
    measure = (
        "import signal, subprocess, sys, time; from pipelines.usage import Tree\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "with Tree() as tree:\n"
        f"    child = subprocess.Popen([sys.executable, '-c', {busy!r}]); child.wait()\n"
        "    print(tree.cpu(), tree.forgotten())"
    )
    found = printed_by(measure)
    assert float(found[0]) > 0.5
    assert 0.5 < float(found[1]) <= 1.3
