"""The advice is the cheapest setting on time, says why in place, and is no more certain than the simulations."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiopurgatory.cli import main
from aiopurgatory.pipeline.advise import AdviceError, advise
from aiopurgatory.pipeline.generate import trace
from aiopurgatory.pipeline.model import FEW, MANY, Workload
from aiopurgatory.pipeline.simulate import SCHEMA, grid, measures

PLAIN: dict[str, Any] = {
    "tick_ms": 1.0,
    "wheel_size": 20,
    "purge_interval": 0,
    "operations": 1_000_000,
    "expired": 100_000,
    "left": 0,
    "span_us": 10_000_000,
    "cascades": 50_000,
    "wakeups": 10_100,
    "wakeups_in_trace": 10_000,
    "heap_operations": 20_000,
    "purges": 0,
    "purge_visits": 0,
    "late_p99_us": 990,
    "peak_pending": 5_000,
    "peak_bytes": 2_000_000,
}
COARSE = {"tick_ms": 10.0, "wakeups": 1_010, "wakeups_in_trace": 1_000, "late_p99_us": 9_900}
PURGING = {"purge_interval": 1_000, "purges": 990, "purge_visits": 16_000_000, "peak_bytes": 3_000_000}


NOBODY: dict[str, Any] = {"expired": 0, "late_p99_us": 0}
MINUTE = {**COARSE, "tick_ms": 60_000.0, "wakeups": 10, "wakeups_in_trace": 10}
Row = dict[str, Any]


def rows(*changes: Row) -> list[Row]:
    return [PLAIN | change for change in changes]


def text_of(*changes: Row, **options: Any) -> str:
    return advise(rows(*changes), **options).markdown()


def test_advise_is_the_cheapest_on_time() -> None:
    every: list[Row] = [{}, COARSE, PURGING]
    use = "Use `Purgatory(tick=0.01, wheel_size=20, purge_interval=0)`: it saves 8% of 34.7% of a core."
    assert text_of(*every).splitlines()[2] == use
    text = text_of(*every, max_lateness_ms=5)
    assert text.splitlines()[2] == "Keep the defaults: no other setting takes less CPU time."
    assert text.count("\n| ") == 2 + 3
    assert "| tick=0.001, wheel_size=20, purge_interval=0 (advised) |" in text


def test_advise_near_the_same_cost_stays_with_the_defaults() -> None:
    slightly = {"wheel_size": 64, "cascades": 0}
    assert text_of({}, slightly).splitlines()[2] == "Keep the defaults: no other setting takes less CPU time."


def test_advise_gain_that_nobody_notices_stays_and_says_so() -> None:
    few = {"operations": 10_000, "expired": 1_000, "span_us": 100_000_000}
    headline = text_of(few, COARSE | few).splitlines()[2]
    assert headline == "Keep the defaults: another tick would save 77% of 0.35% of a core, too little to notice."
    large = {"peak_bytes": 20_000_000}
    assert "it saves 77% of 0.35% of a core, and 18 MB." in text_of(few | large, COARSE | few)


def test_advise_says_what_was_recorded_and_simulated() -> None:
    text = text_of({}, workloads=[replace(FEW, operations=81_234.0, seconds_covered=2_580.0, expired=0.0001)])
    assert "Recorded: 81,234 operations in 43 min; 0.01% of them expired." in text
    assert "Simulated: a trace of 1,000,000 operations in 10 s." in text
    assert "A busy event loop adds its own" in text
    assert not re.search(r"\de[+-]?\d", text)


@pytest.mark.parametrize("expired", [0, 3, 299])
def test_advise_few_expired_takes_one_tick_for_lateness(expired: int) -> None:
    few = NOBODY | {"expired": expired}
    text = text_of(few, MINUTE | few, COARSE | few)
    assert "Use `Purgatory(tick=0.01, " in text  # a tick of a minute may be a minute late, though none was seen to be
    assert f"Only {expired} operations expired, so the worst lateness is assumed: 10 ms" in text
    assert text.count("| up to ") == 3
    with pytest.raises(AdviceError, match=r"at most 0\.5 ms late, but the best setting reaches 1 ms"):
        text_of(few, MINUTE | few, max_lateness_ms=0.5)


def test_advise_enough_expired_counts_what_was_measured() -> None:
    text = text_of({"expired": 300, "late_p99_us": 400}, max_lateness_ms=0.5)
    assert "| 0.4 |" in text
    assert "up to 0.4" not in text


def test_advise_from_too_few_operations_is_refused() -> None:
    few = ({"operations": 999}, COARSE | {"operations": 999})
    with pytest.raises(AdviceError, match="999 operations, at least 1,000 are needed: simulate a longer trace"):
        text_of(*few)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ([], {}, "no advice from 0 operations"),
        ([{}], {"max_lateness_ms": 0.5}, r"at most 0\.5 ms late, but the best setting reaches 0\.99 ms"),
    ],
)
def test_advise_without_a_setting_to_choose_is_refused(changes: list[Row], options: Row, message: str) -> None:
    with pytest.raises(AdviceError, match=message):
        text_of(*changes, **options)


@pytest.mark.parametrize(("workload", "share"), [(FEW, 0.078), (MANY, 0.5)], ids=["few", "many"])
def test_advise_on_the_workloads_of_kafkas_benchmark(spark: SparkSession, workload: Workload, share: float) -> None:
    requests = trace(spark.range(10_000), [workload], rate=50_000).toArrow()
    settings = grid([1.0, 10.0], [20, 256], [0, 1000])
    best = advise([asdict(each) | measures(requests, each) for each in settings]).best
    assert best.setting.purge_interval == 0
    assert best.each("expired") == pytest.approx(share, abs=0.02)


def test_command_advise_reads_what_simulate_wrote(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = tuple(PLAIN[each.split()[0]] for each in SCHEMA.split(", "))
    spark.createDataFrame([row], SCHEMA).write.parquet(str(tmp_path / "simulations"))
    assert main(["pipeline", "advise", str(tmp_path)]) == 0
    assert "a trace of 1,000,000 operations" in capsys.readouterr().out
    assert main(["pipeline", "advise", "--max-lateness-ms", "0", str(tmp_path)]) == 1
    assert "99 % of expirations must be at most 0 ms late" in capsys.readouterr().err


def test_command_advise_without_results_is_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "advise", str(tmp_path / "none")]) == 1  # in the session of the tests
    said = capsys.readouterr().err
    assert said.startswith("aiopurgatory pipeline advise: ")
    assert "there are no simulations in" in said
    assert said.count("\n") == 1
    assert spark.range(1).count() == 1  # it is not stopped
