"""The benchmark of the threshold waiters runs in each of its ways, and prints lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/bench_threshold.py"


@pytest.mark.parametrize("options", [[], ["--awaited"], ["--way", "keyed"], ["--gc", "raised", "--awaited"]])
def test_bench_threshold_prints_both_sizes_and_the_ratio(options: list[str]) -> None:
    command = [sys.executable, str(SCRIPT), "--few", "10", "--many", "100", "--rounds", "1", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (run.returncode, run.stderr) == (0, "")
    few, many, last = map(json.loads, run.stdout.splitlines())
    assert (few["waiters"], few["repeats"], many["waiters"], many["repeats"]) == (10, 10, 100, 1)
    assert last["ratio"] == pytest.approx(many["cpu_us_each"] / few["cpu_us_each"])
    assert {"form", "cores", "processor", "versions"} <= last.keys()
