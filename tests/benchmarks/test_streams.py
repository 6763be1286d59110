"""The benchmark of event streams delivers to every listener of every competitor, and its tables compare them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from private_servers import program
from tables import sections
from tables.results import Results

SCRIPT = Path(__file__).parents[2] / "benchmarks/bench_streams.py"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_bench_streams_smoke_delivers_to_every_listener() -> None:
    for package in ("redis", "sse_starlette", "uvicorn", "uvloop"):
        pytest.importorskip(package)
    if program("redis-server", "valkey-server") is None:
        pytest.skip("redis-server is not installed: make programs")
    command = [sys.executable, str(SCRIPT), "--smoke", "--lines"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (run.returncode, run.stderr) == (0, "")
    first, *lines = map(json.loads, run.stdout.splitlines())
    assert first["versions"].keys() >= {"aiopurgatory", "redis", "redis-server", "sse-starlette", "uvicorn"}
    assert {line["what"] for line in lines} == {"2 x 3"}
    assert {line["competitor"] for line in lines} == {"RedisLog", "XREAD", "MemoryLog", "Queue"}
    for line in lines:
        assert 0 < line["least_delivered"] <= line["most_delivered"]
        assert 0.0 < line["p50_ms"] <= line["p99_ms"]
    (connections,) = (line["connections"] for line in lines if line["competitor"] == "RedisLog")
    assert connections <= 3


def test_section_compares_each_of_ours_with_its_peer() -> None:
    values = {"RedisLog": [20.0, 30.0, 90.0], "XREAD": [100.0, 100.0, 300.0], "Queue": [50.0, 50.0, 50.0]}
    found = Results(
        {"table": "streams", "what": "2 x 100", "competitor": name, "round": number, "cpu_us_per_event": value}
        for name, each in values.items()
        for number, value in enumerate(each)
    )
    text = sections.section("streams", found)
    assert "| CPU per event, RedisLog / XREAD, 2 x 100 | 0.2 | 0.1 | 0.3 | missed |" in text
    assert "| cpu us per event | 30 (20 to 90) | 100 (100 to 300) | 50 | 0.30 (0.20 to 0.30) |" in text
