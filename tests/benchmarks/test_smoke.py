"""Every measurement runs, and becomes a table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import COMPETITORS, TABLES
from private_servers import program
from tables import sections
from tables.results import Results

import aiopurgatory

ROOT = Path(__file__).parents[2]
#: Where no compiler is, the interpreted one.
LIBRARY = str(Path(aiopurgatory.__file__).parents[1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_run_smoke_measures_everything(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    peers = shutil.copytree(ROOT / "benchmarks", tmp_path / "peers")  # as make bench has them
    command = [sys.executable, "benchmarks/run.py", "--smoke", "--output", str(tmp_path)]
    command += ["--compiled", LIBRARY, "--peers", str(peers)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    tables = [table for table in TABLES if table != "fleets" or program("initdb", "redis-server", "valkey-server")]
    assert {line["table"] for line in lines} == {"machine", *tables}
    assert all(line["never_woken"] == 0 for line in lines if line.get("what") == "fault")
    requests = [line for line in lines if line["table"] == "requests"]
    assert {line["competitor"] for line in requests} == {label for label, _, _ in COMPETITORS}
    for line in requests:
        assert line["completed"] + line["expired"] == line["requests"] == 1_000
        assert abs(line["completed"] - 500) < 100
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.count(sections.measured_on(Results(lines))) == 2 + len(tables)  # the targets, where a peer beats us


def measured(script: str, *options: str, timeout: int = 55) -> tuple[Any, list[Any], str]:
    """What *script* says about the machine, its lines, and all that it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert (run.returncode, run.stderr) == (0, "")
    machine, *lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert machine["versions"].keys() >= {"Python", "aiopurgatory"}
    return machine, lines, run.stdout


@pytest.mark.slow
def test_bench_follow_smoke_measures_every_competitor() -> None:
    _, lines, text = measured("bench_follow.py", "--rounds", "1", "--values", "2000")
    assert len({(line["what"], line["competitor"]) for line in lines}) == 12
    assert all(line["cpu_us"] > 0 for line in lines)
    assert "| at hand | " in text  # the table of all


@pytest.mark.slow
def test_bench_timeouts_smoke_measures_every_competitor() -> None:
    _, lines, _ = measured("bench_timeouts.py", "--smoke", "--lines")
    assert {line["what"] for line in lines} == {"cost", "traced"}
    assert {"ours", "asyncio"} <= {line["competitor"] for line in lines}
    assert all(line["value"] > 0 for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_bench_streams_smoke_delivers_to_every_listener() -> None:
    for package in ("redis", "sse_starlette", "uvicorn", "uvloop"):
        pytest.importorskip(package)
    if program("redis-server", "valkey-server") is None:
        pytest.skip("redis-server is not installed: make programs")
    machine, lines, _ = measured("bench_streams.py", "--smoke", "--lines", timeout=110)
    assert machine["versions"].keys() >= {"redis", "redis-server", "sse-starlette", "uvicorn"}
    assert {line["what"] for line in lines} == {"2 x 3"}
    assert {line["competitor"] for line in lines} == {"RedisLog", "XREAD", "MemoryLog", "Queue"}
    for line in lines:
        assert 0 < line["least_delivered"] <= line["most_delivered"]
        assert 0.0 < line["p50_ms"] <= line["p99_ms"]
    (connections,) = (line["connections"] for line in lines if line["competitor"] == "RedisLog")
    assert connections <= 3


def test_growth_prints_a_row_for_each_size() -> None:
    command = [sys.executable, "benchmarks/bench_growth.py", "--most", "1000"]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    titles = [line.split(" | ")[0].strip("| ") for line in rows]
    assert [title for title in titles if not title[0].isdigit() and title[0] != "-"] == [
        *("pending", "keys", "waiters", "longest turn of", "waits, bytes of each", "tasks")
    ]
    assert titles.count("1,000") == 5
    assert "nan" not in printed


@pytest.mark.parametrize(
    "whats", [["parked"], pytest.param(["clients", "parked", "many", "idle"], marks=pytest.mark.slow)]
)
@pytest.mark.timeout(120)
def test_bench_broker_smoke_measures_both(whats: list[str]) -> None:
    for package in ("kio", "aiokafka", "confluent_kafka"):
        pytest.importorskip(package)
    options = [f"--only={what}" for what in whats]
    _, lines, text = measured("bench_broker.py", "--smoke", "--compiled", LIBRARY, *options, timeout=120)
    assert [(line["what"], line["broker"]) for line in lines] == [
        (each, broker)
        for what in whats
        for broker in ("ours", "event")
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
    assert "broker's CPU per answer, ours / Event" in text


def test_bench_timers_small_measures_every_design(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    pytest.importorskip("pyperf")
    output = tmp_path / "timers.json"
    once = ["-p", "1", "-n", "1", "-w", "0", "-l", "1", "-q", "-o", str(output)]
    command = [sys.executable, str(ROOT / "benchmarks/bench_timers.py"), "--pending", "1000", *once]
    subprocess.run(command, check=True)
    benchmarks = json.loads(output.read_text())["benchmarks"]
    found = {(one["metadata"]["operation"], one["metadata"]["design"]) for one in benchmarks}
    cancelling = {("add + cancel", name) for name in ("ours", "asyncio", "uvloop")}
    assert found == cancelling | {("add + expire", name) for name in ("ours", "asyncio")}
