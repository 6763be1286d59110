"""The advice is the cheapest setting on time, and no more certain than the simulations."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiopurgatory.cli import main
from aiopurgatory.pipeline import advise as stage
from aiopurgatory.pipeline.advise import AdviceError, advise
from aiopurgatory.pipeline.generate import generate_table
from aiopurgatory.pipeline.simulate import grid, measures
from aiopurgatory.pipeline.spark.folders import write_bytes
from aiopurgatory.pipeline.workload import simulations
from aiopurgatory.pipeline.workload.model import FEW, MANY, Workload
from aiopurgatory.pipeline.workload.simulations import SimulationsError

PLAIN: dict[str, Any] = {
    "tick_ms": 1.0,
    "wheel_size": 20,
    "purge_interval": 0,
    "timeout_ms": None,
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
SHORTER = {"timeout_ms": 50.0, "expired": 400_000, "peak_pending": 3_000, "wakeups": 1}


NOBODY: dict[str, Any] = {"expired": 0, "late_p99_us": 0}
MINUTE = {**COARSE, "tick_ms": 60_000.0, "wakeups": 10, "wakeups_in_trace": 10}


def table_of(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**PLAIN, **change} for change in changes], schema=simulations.SCHEMA)


def text_of(table: pa.Table, **limits: Any) -> str:
    return advise(table, **limits).markdown()


def test_advise_is_the_cheapest_on_time() -> None:
    found = table_of({}, COARSE, PURGING, SHORTER)
    assert "Use `Purgatory(tick=0.01, wheel_size=20, purge_interval=0)`" in text_of(found)
    text = text_of(found, max_lateness_ms=5)
    assert "Keep the defaults: `Purgatory()`" in text
    assert "tick=0.01, wheel_size=20, purge_interval=0: 8% less CPU time, 90% less wake-ups" in text
    assert "expirations 9.9 ms late, which is too late" in text
    assert "its 990 purges visit 16.0 entries per operation" in text
    assert "With a timeout of 50 ms for all operations, 40.0% would expire instead of 10.0%" in text
    assert text.count("\n| ") == 2 + 4
    assert "| **tick=0.001, wheel_size=20, purge_interval=0** |" in text


def test_advise_near_the_same_cost_stays_with_the_defaults() -> None:
    slightly = {"wheel_size": 64, "cascades": 0}
    assert text_of(table_of({}, slightly)).splitlines()[2] == "Keep the defaults: `Purgatory()`."


def test_advise_gain_that_nobody_notices_stays_with_the_defaults() -> None:
    few = {"operations": 10_000, "expired": 1_000, "span_us": 100_000_000}
    found = table_of({**PLAIN, **few}, {**PLAIN, **COARSE, **few})
    assert "Keep the defaults: `Purgatory()`." in text_of(found)  # 100 a second: a tick of 10 ms saves .3 % of a core
    large = {"peak_bytes": 20_000_000}
    assert "Use `Purgatory(tick=0.01," in text_of(table_of({**PLAIN, **few, **large}, {**PLAIN, **COARSE, **few}))


def test_advise_numbers_are_plain() -> None:
    rare = {"wakeups": 2_200_000, "wakeups_in_trace": 2_200_000, "peak_bytes": 12_345}
    text = text_of(table_of({"peak_bytes": 12_345, "wakeups_in_trace": 3, "span_us": 10_000_000}, {**COARSE, **rare}))
    assert "and 0.3 wake-ups a second" in text
    assert "in 12 kB." in text
    assert "733,333 times the wake-ups" in text
    assert not re.search(r"\de[+-]?\d|\b0\.0 MB|\b0 wake-ups", text)


def test_advise_says_what_was_recorded() -> None:
    shares = {"expired": 0.0001}
    evidence = {"operations": 81_234.0, "seconds_covered": 2_580.0, "shares": shares}
    text = text_of(table_of({}), workloads=[replace(FEW, evidence=evidence)])
    assert "Recorded: 81,234 operations in 43 min; 0.01% of them expired." in text
    assert "Simulated: a trace of 1,000,000 operations in 10 s; 10.0% of them expire." in text


@pytest.mark.parametrize("expired", [0, 3, 299])
def test_advise_few_expired_takes_one_tick_for_lateness(expired: int) -> None:
    few = {**NOBODY, "expired": expired}
    text = text_of(table_of(few, {**MINUTE, **few}, {**COARSE, **few}))
    assert "Use `Purgatory(tick=0.01, " in text  # a tick of a minute may be a minute late, though none was seen to be
    assert f"Only {expired} operations expired." in text
    assert "the worst case is assumed: one tick, 10 ms" in text
    assert "expirations up to 60,000 ms late, which is too late" in text
    assert text.count("| up to ") == 3
    with pytest.raises(AdviceError, match=r"at most 0\.5 ms late, but the best setting reaches 1 ms"):
        text_of(table_of(few, {**MINUTE, **few}), max_lateness_ms=0.5)


def test_advise_enough_expired_counts_what_was_measured() -> None:
    text = text_of(table_of({"expired": 300, "late_p99_us": 400}), max_lateness_ms=0.5)
    assert "99 % of expirations are at most 0.4 ms late." in text
    assert "up to" not in text.split("wheel_size=20, purge_interval=0** |")[1]


def test_advise_says_how_much_it_has_seen() -> None:
    text = text_of(table_of({}))
    assert "a trace of 1,000,000 operations in 10 s; 10.0% of them expire." in text
    assert "on an idle machine. A busy event loop adds its own delays" in text
    assert "operations in 2.5 h;" in text_of(table_of({"span_us": 9_000_000_000}))


def test_advise_from_too_few_operations_is_refused() -> None:
    few = table_of({"operations": 999}, {**COARSE, "operations": 999})
    with pytest.raises(AdviceError, match="999 operations, at least 1,000 are needed: simulate a trace with more rows"):
        text_of(few)
    assert "a trace of 999 operations" in text_of(few, fewest=999)


def test_advise_without_a_setting_to_choose_is_refused() -> None:
    with pytest.raises(AdviceError, match="must have a setting with"):
        text_of(table_of(SHORTER))
    with pytest.raises(AdviceError, match="must have a setting with"):
        text_of(table_of())
    with pytest.raises(AdviceError, match=r"at most 0\.5 ms late, but the best setting reaches 0\.99 ms"):
        text_of(table_of({}), max_lateness_ms=0.5)


def test_advise_of_a_setting_that_the_library_refuses_is_refused() -> None:
    with pytest.raises(AdviceError, match=r"tick must be from 1e-09 to 1e\+06 s, got 0\.0: simulate again"):
        text_of(table_of({}, {"tick_ms": 0.0}))


def test_advise_has_a_row_for_each_setting_and_the_code() -> None:
    advice = advise(table_of({}, COARSE, PURGING))
    assert advice.call == "Purgatory(tick=0.01, wheel_size=20, purge_interval=0)"
    assert [row["setting"] for row in advice.rows].count(advice.best.name) == 1
    assert all(sentence in advice.markdown() for sentence in advice.sentences)


# the stage


def options(folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    stage.arguments(parser)
    return parser.parse_args([str(folder / "simulations"), str(folder / "out"), *more])


def test_run_reads_results_and_replaces_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulations.write(table_of({}, COARSE), str(tmp_path / "simulations"))
    stage.run(options(tmp_path))
    first = (tmp_path / "out" / "advice.md").read_text()
    assert "tick=0.01," in first
    assert first in capsys.readouterr().out
    stage.run(options(tmp_path, "--max-lateness-ms", "5"))
    assert "tick=0.001," in (tmp_path / "out" / "advice.md").read_text()
    assert os.listdir(tmp_path / "out") == ["advice.md"]


def test_run_that_cannot_advise_leaves_the_earlier_advice(tmp_path: Path) -> None:
    simulations.write(table_of({}), str(tmp_path / "simulations"))
    stage.run(options(tmp_path))
    simulations.write(table_of({"operations": 999}), str(tmp_path / "simulations"))
    with pytest.raises(AdviceError, match="at least 1,000 are needed"):
        stage.run(options(tmp_path))
    assert "`Purgatory()`" in (tmp_path / "out" / "advice.md").read_text()


def test_command_advise_needs_no_spark(tmp_path: Path) -> None:
    simulations.write(table_of({}), str(tmp_path / "simulations"))
    script = (
        "import sys\nfrom aiopurgatory.cli import main\n"
        f"status = main(['pipeline', 'advise', {str(tmp_path / 'simulations')!r}, {str(tmp_path)!r}])\n"
        "assert 'pyspark' not in sys.modules\nsys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "`Purgatory()`" in done.stdout


def test_command_advise_without_results_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "advise", str(tmp_path / "none"), str(tmp_path)]) == 1
    said = f"simulations must be a folder that simulate has written, got {tmp_path / 'none'}"
    assert capsys.readouterr().err == f"aiopurgatory pipeline advise: {said}\n"


# the results


def test_results_read_what_was_written_last(tmp_path: Path) -> None:
    folder = tmp_path / "José [1] {x,y} a:b"
    for table in (table_of({}), table_of({}, COARSE)):
        simulations.write(table, str(folder))
        assert simulations.read(str(folder)).equals(table)
        assert os.listdir(folder) == [simulations.NAME]
    assert simulations.read(f"file://{folder}").num_rows == 2


def test_results_that_cannot_be_written_leave_the_earlier_ones(tmp_path: Path) -> None:
    simulations.write(table_of({}), str(tmp_path))
    with pytest.raises(KeyError):
        simulations.write(table_of({}, {}).drop_columns("left"), str(tmp_path))
    script = (
        "import resource, sys\n"
        "from aiopurgatory.pipeline.spark.folders import write_bytes\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"  # as if the disk were full
        "write_bytes(sys.argv[1], bytes(100_000))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / simulations.NAME)]
    assert "OSError" in subprocess.run(command, capture_output=True, text=True).stderr
    assert simulations.read(str(tmp_path)).num_rows == 1
    assert os.listdir(tmp_path) == [simulations.NAME]


def test_results_remove_what_a_killed_run_left(tmp_path: Path) -> None:
    (tmp_path / f".{simulations.NAME}.0123").write_bytes(b"half")
    simulations.write(table_of({}), str(tmp_path))
    assert os.listdir(tmp_path) == [simulations.NAME]


def test_results_of_another_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / simulations.NAME).write_bytes(b"no Parquet")
    with pytest.raises(SimulationsError, match="cannot read"):
        simulations.read(str(tmp_path))
    sink = pa.BufferOutputStream()
    pq.write_table(table_of({}).drop_columns(["left", "span_us"]), sink)
    write_bytes(str(tmp_path / simulations.NAME), sink.getvalue().to_pybytes())
    with pytest.raises(SimulationsError, match="has no column left, span_us: simulate again"):
        simulations.read(str(tmp_path))


@pytest.mark.parametrize(("workload", "share"), [(FEW, 0.078), (MANY, 0.5)], ids=["few", "many"])
def test_advise_on_the_workloads_of_kafkas_benchmark(workload: Workload, share: float) -> None:
    trace = generate_table([workload], 10_000, rate=50_000)
    settings = grid([1.0, 10.0], [20, 256], [0, 1000])
    rows = [{**asdict(setting), **measures(trace, setting)} for setting in settings]
    best = advise(pa.Table.from_pylist(rows, schema=simulations.SCHEMA)).best
    assert best.setting.purge_interval == 0
    assert best.expired == pytest.approx(share, abs=0.02)
