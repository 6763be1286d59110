"""The benchmark of the broker: each measurement runs, for both forms of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("aiokafka")


import aiopurgatory

ROOT = Path(__file__).parents[2]
LIBRARY = str(Path(aiopurgatory.__file__).parents[1])
BROKERS = ("ours", "event")


@pytest.mark.parametrize(
    "whats", [["parked"], pytest.param(["clients", "parked", "many", "idle"], marks=pytest.mark.slow)]
)
@pytest.mark.timeout(120)
def test_bench_broker_smoke_measures_both(whats: list[str]) -> None:
    pytest.importorskip("confluent_kafka")
    options = [f"--only={what}" for what in whats]
    command = [sys.executable, "benchmarks/bench_broker.py", "--smoke", "--compiled", LIBRARY, *options]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stderr) == (0, "")
    texts = run.stdout.splitlines()
    lines = [json.loads(line) for line in texts if line.startswith("{")][1:]
    assert [(line["what"], line["broker"]) for line in lines] == [
        (each, broker)
        for what in whats
        for broker in BROKERS
        for each in ([what, "grouped"] if what == "idle" else [what])
    ]
    for line in lines:
        if line["what"] == "clients":
            assert ("parked" in line) == (line["broker"] == "ours")
            assert line["p50_ms"] > 0
        elif line["what"] == "grouped":
            assert line["broker_cpu_percent"] > 0
        else:
            assert line["broker_cpu_us_per_answer"] > 0
            assert (line["expired_share"] == 1.0) == (line["what"] == "idle")
    assert any("broker's CPU per answer, ours / Event" in line for line in texts)
