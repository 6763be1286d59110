"""The benchmark of follow() measures each competitor, in each situation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/bench_follow.py"


@pytest.mark.slow
def test_bench_follow_smoke_measures_every_competitor() -> None:
    command = [sys.executable, str(SCRIPT), "--rounds", "1", "--values", "2000"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert (run.returncode, run.stderr) == (0, "")
    machine, *lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert machine["versions"].keys() >= {"Python", "aiopurgatory"}
    assert len({(line["what"], line["competitor"]) for line in lines}) == 12
    assert all(line["cpu_us"] > 0 for line in lines)
    assert "| at hand | " in run.stdout  # the table of all
