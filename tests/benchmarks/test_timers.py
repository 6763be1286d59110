"""The benchmark of timers measures ours and those of the loops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/bench_timers.py"


def test_bench_timers_small_measures_every_design(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    pytest.importorskip("pyperf")
    output = tmp_path / "timers.json"
    once = ["-p", "1", "-n", "1", "-w", "0", "-l", "1"]
    subprocess.run([sys.executable, str(SCRIPT), "--pending", "1000", *once, "-q", "-o", str(output)], check=True)
    benchmarks = json.loads(output.read_text())["benchmarks"]
    measured = {(one["metadata"]["operation"], one["metadata"]["design"]) for one in benchmarks}
    cancelling = {("add + cancel", name) for name in ("ours", "asyncio", "uvloop")}
    assert measured == cancelling | {("add + expire", name) for name in ("ours", "asyncio")}
