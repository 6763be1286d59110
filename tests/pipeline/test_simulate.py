"""Simulations: each setting once, with the results of its replay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.cli import main
from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.simulate import grid, measures, simulate_folder
from aiopurgatory.pipeline.spark.tasks import Spark
from aiopurgatory.pipeline.workload import simulations
from aiopurgatory.pipeline.workload.model import MANY
from aiopurgatory.pipeline.workload.trace import SCHEMA, TraceError
from aiopurgatory.replay.settings import Setting

SETTINGS = grid([1.0, 10.0], [20], [0, 100], [None, 50.0])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return generate_table([MANY], 3_000, rate=10_000)


@pytest.fixture
def trace(table: pa.Table, tmp_path: Path) -> str:
    pq.write_table(table, tmp_path / "trace.parquet")
    return str(tmp_path / "trace.parquet")


def by_setting(folder: str) -> dict[Setting, dict[str, Any]]:
    names = Setting.__dataclass_fields__
    rows = simulations.read(folder).to_pylist()
    return {Setting(**{name: row.pop(name) for name in names}): row for row in rows}


def test_grid_is_every_combination_once() -> None:
    assert len(SETTINGS) == 2 * 1 * 2 * 2
    assert grid([1.0, 1.0], [20]) == [Setting()]
    assert Setting(10.0, 20, 100, 50.0) in SETTINGS


def test_simulate_gives_each_setting_what_its_replay_gives(
    spark: Spark, trace: str, table: pa.Table, tmp_path: Path
) -> None:
    found = by_setting(simulate_folder(spark, trace, str(tmp_path), SETTINGS))
    assert found == {setting: measures(table, setting) for setting in SETTINGS}


def test_simulate_null_completion_and_mixed_key_counts(spark: Spark, tmp_path: Path) -> None:
    rows = [(0, [1], None, 5_000), (0, [1, 2, 3], 2_000, 5_000), (1_000_000, [9], 0, 5_000)]
    pq.write_table(
        pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA),
        tmp_path / "t.parquet",
    )
    (row,) = by_setting(simulate_folder(spark, str(tmp_path), str(tmp_path), [Setting()])).values()
    assert (row["operations"], row["expired"], row["left"]) == (3, 1, 0)
    assert (row["peak_pending"], row["span_us"], row["late_p99_us"]) == (2, 1_000_000, 0)


# the stage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ticks", "1,0"], "tick must be from 1e-09 to 1e+06 s, got 0.0"),
        (["--wheel-sizes", "1"], "wheel_size must be >= 2, got 1"),
        (["--purge-intervals", "0,-5"], "purge_interval must be >= 0, got -5"),
        (["--timeouts", "nan"], "timeout must be from 0 to 1e+09 s, got nan"),
    ],
)
def test_command_simulate_setting_is_refused_before_a_session(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Java that is not there would be the first thing that a session asks for.
    assert main(["pipeline", "simulate", *options, "none", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"aiopurgatory pipeline simulate: {message}\n"
    assert not (tmp_path / "out").exists()


def test_simulate_folder_writes_results_as_a_whole(spark: Spark, table: pa.Table, tmp_path: Path) -> None:
    place = tmp_path / "[1] {x,y} a*"
    place.mkdir()
    pq.write_table(table, place / "trace.parquet")
    for settings in ([Setting(), Setting(tick_ms=10.0)], [Setting()]):
        folder = simulate_folder(spark, str(place / "trace.parquet"), str(place), settings)
        assert simulations.read(folder).num_rows == len(settings)
        assert os.listdir(folder) == [simulations.NAME]
    (row,) = simulations.read(folder).to_pylist()
    assert row["tick_ms"] == 1.0
    assert row.items() >= measures(table, Setting()).items()


def test_simulate_folder_bad_trace_leaves_earlier_results(spark: Spark, trace: str, tmp_path: Path) -> None:
    folder = simulate_folder(spark, trace, str(tmp_path), [Setting()])
    columns = {"arrival_us": [0, 1], "keys": [[1], [2]], "completion_us": [None, 5], "timeout_us": [None, -1]}
    broken = pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in SCHEMA]))
    for table, message in ((SCHEMA.empty_table(), "at least one request"), (broken, "timeout_us must be .* 2 of 2")):
        pq.write_table(table, tmp_path / "bad.parquet")
        with pytest.raises(TraceError, match=message):
            simulate_folder(spark, str(tmp_path / "bad.parquet"), str(tmp_path), [Setting()])
    with pytest.raises(TraceError, match=r"must be a folder that generate has written, got .*none"):
        simulate_folder(spark, str(tmp_path / "none"), str(tmp_path), [Setting()])
    assert simulations.read(folder).num_rows == 1
