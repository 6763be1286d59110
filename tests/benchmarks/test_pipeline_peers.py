"""The pipeline's benchmark: its journal is a real one, its peer makes the right tables, and no CPU time is missed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
duckdb = pytest.importorskip("duckdb")
import pyarrow.parquet as pq  # noqa: E402
from pipelines import with_duckdb  # noqa: E402
from pipelines.agreement import differences, read_table  # noqa: E402
from pipelines.journals import MIDNIGHT, Shape, make  # noqa: E402

from aiopurgatory import DelayedOperation, Purgatory  # noqa: E402
from aiopurgatory.journal import Journal, schema  # noqa: E402

SHAPE = Shape(6_000, 1_000, span=600.0)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines") / "journal"
    make(folder, SHAPE)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    with with_duckdb.connect(tmp_path) as connection:
        yield connection


def rows_of(folder: Path) -> dict[str, Any]:
    """Columns as numpy arrays, in the order of the files' names."""
    table = read_table(folder)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


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


def test_duckdb_rules_know_all_columns() -> None:
    for name, of in (("operations", schema.OPERATIONS), ("statistics", schema.STATISTICS)):
        assert list(with_duckdb.REQUIRED[name]) == [field.name for field in of if not field.nullable]
    numbers = [*with_duckdb.COUNTERS, *with_duckdb.SETTINGS]
    known = [field.name for field in schema.STATISTICS if field.type == "int64"]
    assert numbers == [name for name in known if name != "collector_us"]


def test_duckdb_tables_equal_brute_force(tmp_path: Path, journal: Path, run: Any) -> None:
    assert with_duckdb.ingest(run, journal, tmp_path / "clean") == SHAPE.rows
    with_duckdb.report(run, tmp_path / "clean", tmp_path / "report")
    rows = rows_of(journal / "operations")
    watched = rows["watched_at"].astype("datetime64[us]").astype("int64")
    ended = watched + rows["waited_us"]
    for line in read_table(tmp_path / "report" / "minutes").to_pylist():
        start = int(line["minute"].timestamp()) * 1_000_000
        own = (rows["purgatory"] == line["purgatory"]) & (rows["kind"] == line["kind"])
        of = own & (ended >= start) & (ended < start + 60_000_000)
        assert line["operations"] == of.sum()
        assert line["expired"] == (of & (rows["outcome"] == "expired")).sum()
        exact = np.quantile(rows["waited_us"][of], 0.99, method="inverted_cdf")
        assert line["waited_p99_us"] == pytest.approx(exact, rel=0.0201)
        pending = [(own & (watched <= at) & (ended > at)).sum() for at in range(start, start + 60_000_000, 1_000_000)]
        assert (line["pending_peak"], line["pending_mean"]) == (max(pending), pytest.approx(np.mean(pending)))
    hottest = read_table(tmp_path / "report" / "hot_keys").to_pylist()[0]
    of = (rows["purgatory"] == hottest["purgatory"]) & (rows["key_hash"] == hottest["key_hash"])
    assert hottest["operations"] == of.sum()
    assert MIDNIGHT <= ended.min() <= ended.max() < MIDNIGHT + SHAPE.span * 1e6


def spoil(journal: Path, folder: Path) -> Path:
    """Copy *journal* with a file delivered twice, and with an impossible row."""
    shutil.copytree(journal, folder)
    file = next((folder / "operations").rglob("host-1-*.parquet"))
    shutil.copy(file, file.with_name("again.parquet"))
    row = pq.read_table(file).slice(0, 1)
    at = row.schema.get_field_index("waited_us")
    bad = row.set_column(at, row.schema.field(at), pa.array([-1]))
    bad = bad.set_column(row.schema.get_field_index("instance"), row.schema.field("instance"), pa.array(["host-9"]))
    pq.write_table(bad, file.with_name("bad.parquet"), store_schema=False)
    return folder


def test_duckdb_drops_duplicates_and_quarantines(tmp_path: Path, journal: Path, run: Any) -> None:
    """The report is that of the journal without a file delivered twice, and without an impossible row."""
    spoiled = spoil(journal, tmp_path / "journal")
    for name, source in (("good", journal), ("spoiled", spoiled)):
        assert with_duckdb.ingest(run, source, tmp_path / name) == SHAPE.rows
        with_duckdb.report(run, tmp_path / name, tmp_path / f"{name}-report")
    assert differences(tmp_path / "good-report", tmp_path / "spoiled-report") == []
    assert read_table(tmp_path / "spoiled" / "quarantine").column("reason").to_pylist() == ["waited_us is negative"]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_pipeline_has_the_tables_of_duckdb(tmp_path: Path, journal: Path, run: Any) -> None:
    """In two batches, of a spoiled journal."""
    pytest.importorskip("pyspark")
    from aiopurgatory.pipeline.ingest import ingest
    from aiopurgatory.pipeline.report import report
    from aiopurgatory.pipeline.session import session

    spoiled = spoil(journal, tmp_path / "journal")
    with_duckdb.ingest(run, spoiled, tmp_path / "clean")
    with_duckdb.report(run, tmp_path / "clean", tmp_path / "peer")
    with session("local[2]") as spark:
        counts = ingest(spark, str(spoiled), str(tmp_path / "out"), max_files=7)["operations"]
        report(spark, str(tmp_path / "out"))
    assert (counts.counted, counts.quarantined) == (SHAPE.rows, {"waited_us is negative": 1})
    (made,) = (tmp_path / "out" / "report").glob("*")
    assert differences(made, tmp_path / "peer") == []


def test_differences_names_what_differs(tmp_path: Path, journal: Path, run: Any) -> None:
    make(tmp_path / "other", Shape(SHAPE.rows - 100, 1_000, SHAPE.span))
    for name, source in (("one", journal), ("two", tmp_path / "other")):
        with_duckdb.ingest(run, source, tmp_path / name)
        with_duckdb.report(run, tmp_path / name, tmp_path / f"{name}-report")
    found = differences(tmp_path / "one-report", tmp_path / "two-report")
    assert any(line.startswith("days: operations differs") for line in found)


def printed_by(program: str) -> list[str]:
    """The words that *program* prints, in a process of its own: this one may have other children."""
    command = [sys.executable, "-c", program]
    folder = Path(with_duckdb.__file__).parents[1]
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
    busy = "import time\nwhile time.process_time() < 1.2: pass"
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
