"""Every measurement runs, and becomes a table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import COMPETITORS, TABLES
from private_servers import program
from tables import sections
from tables.results import Results

import aiopurgatory

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_run_smoke_measures_everything(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    library = Path(aiopurgatory.__file__).parents[1]  # where no compiler is, the interpreted one
    command = [sys.executable, "benchmarks/run.py", "--smoke", "--output", str(tmp_path), "--compiled", str(library)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    measured = [table for table in TABLES if table != "fleets" or program("initdb", "redis-server", "valkey-server")]
    assert {line["table"] for line in lines} == {"machine", *measured}
    assert all(line["never_woken"] == 0 for line in lines if line.get("what") == "fault")
    requests = [line for line in lines if line["table"] == "requests"]
    assert {line["competitor"] for line in requests} == {label for label, _, _ in COMPETITORS}
    for line in requests:
        assert line["completed"] + line["expired"] == line["requests"] == 1_000
        assert abs(line["completed"] - 500) < 100
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.count(sections.measured_on(Results(lines))) == 2 + len(measured)  # the targets, where a peer beats us
