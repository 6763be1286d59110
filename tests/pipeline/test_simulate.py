"""Simulations: each setting once, with the results of its replay."""

from __future__ import annotations

import re
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aiopurgatory.cli import main
from aiopurgatory.pipeline.failures import explain
from aiopurgatory.pipeline.generate import SCHEMA, trace
from aiopurgatory.pipeline.model import MANY
from aiopurgatory.pipeline.simulate import grid, measures, replays
from aiopurgatory.replay.target import Setting

SETTINGS = grid([1.0, 10.0], [20, 64], [0, 100])
GOOD: dict[str, Any] = {"arrival_us": 0, "keys": [1, 2], "completion_us": None, "timeout_us": 0}


def test_grid_is_every_combination_once() -> None:
    assert len(SETTINGS) == 2 * 2 * 2
    assert grid([1.0, 1.0], [20], [0]) == [Setting()]
    assert Setting(10.0, 64, 100) in SETTINGS


def test_replays_give_each_setting_what_its_replay_gives(spark: SparkSession) -> None:
    requests = trace(spark.range(3_000), [MANY], rate=10_000)
    table = requests.toArrow()
    rows = replays(requests, SETTINGS).toArrow().to_pylist()
    names = Setting.__dataclass_fields__
    found = {tuple(row.pop(name) for name in names): row for row in rows}
    assert found == {astuple(each): measures(table, each) for each in SETTINGS}


def test_replays_null_completion_and_mixed_key_counts(spark: SparkSession) -> None:
    rows = [(1_000_000, [9], 0, 5_000), (0, [1], None, 5_000), (0, [1, 2, 3], 2_000, 5_000)]  # in any order
    (row,) = replays(spark.createDataFrame(rows, SCHEMA), [Setting()]).collect()
    assert (row["operations"], row["expired"], row["left"]) == (3, 1, 0)
    assert (row["peak_pending"], row["span_us"], row["late_p99_us"]) == (2, 1_000_000, 0)


def test_replays_of_an_empty_trace_are_none(spark: SparkSession) -> None:
    assert replays(spark.createDataFrame([], SCHEMA), [Setting()]).count() == 0


@pytest.mark.parametrize(
    "change",
    [
        *({"arrival_us": each} for each in (-1, None)),
        *({"keys": each} for each in ([], None, [1, None])),
        *({"completion_us": -5}, {"timeout_us": -1}, {"timeout_us": None}),
    ],
)
def test_replays_of_a_row_that_breaks_a_rule_name_it(spark: SparkSession, change: dict[str, Any]) -> None:
    rows = [tuple(each.values()) for each in (GOOD, GOOD | change)]
    with pytest.raises(PySparkException) as caught:
        replays(spark.createDataFrame(rows, SCHEMA), [Setting()]).collect()
    assert "a row of the trace breaks a rule: {" in explain(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ticks", "1,0"], "tick must be from 1e-09 to 1e+06 s, got 0.0"),
        (["--wheel-sizes", "1"], "wheel_size must be >= 2, got 1"),
        (["--purge-intervals", "0,-5"], "purge_interval must be >= 0, got -5"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_command_simulate_impossible_setting_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").mkdir()
    assert main(["pipeline", "simulate", *options, str(tmp_path / "trace"), str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"aiopurgatory pipeline simulate: {message}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("spark")
def test_command_simulate_reads_the_trace_that_generate_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "generate", "--workload", "few", "--rows", "2000", str(tmp_path)]) == 0
    assert main(["pipeline", "simulate", "--ticks", "1", str(tmp_path / "trace"), str(tmp_path)]) == 0
    assert "4 settings: " in capsys.readouterr().out


def test_docs_functions_work_in_a_job_of_ones_own(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    (program,) = re.findall(r"^```py\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    exec(program.replace("100_000", "2_000"), {"spark": spark})
    assert "peak_pending" in capsys.readouterr().out
