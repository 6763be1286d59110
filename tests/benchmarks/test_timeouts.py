"""The benchmark of timeouts for blocks of code measures each competitor, and its tables compare them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tables import sections
from tables.results import Results

SCRIPT = Path(__file__).parents[2] / "benchmarks/bench_timeouts.py"


@pytest.mark.slow
def test_bench_timeouts_smoke_measures_every_competitor() -> None:
    command = [sys.executable, str(SCRIPT), "--smoke", "--lines"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert (run.returncode, run.stderr) == (0, "")
    first, *lines = map(json.loads, run.stdout.splitlines())
    assert first["versions"].keys() >= {"Python", "aiopurgatory"}
    assert {line["what"] for line in lines} == {"cost", "traced"}
    assert {"ours", "asyncio"} <= {line["competitor"] for line in lines}
    assert all(line["value"] > 0 for line in lines)


def test_section_ratio_is_the_median_of_the_rounds_ratios() -> None:
    values = {"ours": [10.0, 30.0, 20.0], "asyncio": [100.0, 100.0, 400.0]}
    labels = {"table": "timeouts", "what": "cost", "loop": "asyncio", "form": "compiled"}
    found = Results(
        {**labels, "competitor": name, "round": number, "value": value}
        for name, each in values.items()
        for number, value in enumerate(each)
    )
    text = sections.section("timeouts", found)
    assert "| asyncio: CPU, ours / `asyncio.timeout()` | 0.3 | 0.15 | 0.1 | aim |" in text
    assert "| asyncio | compiled | 20 (10 to 30) | 100 (100 to 400) | 0.10 (0.05 to 0.30) |" in text
