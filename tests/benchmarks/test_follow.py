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
    *lines, machine = map(json.loads, run.stdout.splitlines())
    assert machine["versions"].keys() >= {"Python", "aiopurgatory"}
    measured = {(line["what"], line["competitor"]) for line in lines if "competitor" in line}
    assert len(measured) == 12
    assert len([line for line in lines if "ratio" in line]) == 9
    assert all(line["cpu_us"]["median"] > 0 for line in lines if "competitor" in line)
