"""Every benchmark runs, and those that are compared do the same work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import aiopurgatory

ROOT = Path(__file__).parents[1]


def test_run_quick_competitors_do_the_same_work(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    form = ["--compiled", str(Path(aiopurgatory.__file__).parents[1])] if aiopurgatory.COMPILED else []
    command = [sys.executable, str(ROOT / "benchmarks/run.py"), "--quick", "--output", str(tmp_path), *form]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    points = [json.loads(line) for line in (tmp_path / "figures.json").read_text().splitlines()]
    tables = {point["table"] for point in points}
    assert tables == {"timer", "scale", "requests", "operations", "memory", "collector"}
    for point in points:
        assert point["low"] > 0
        if point["table"] in ("requests", "collector"):
            ours, peers = point["completed"]
            assert ours == peers > 0
        if point["table"] == "operations":
            assert point["completed"] == [4_000, 4_000]  # 1 and 3 keys, 2 blocks of 1,000 each
    assert (tmp_path / "figures.png").stat().st_size > 0
