"""The demo of event streams: three workers on real servers, with faults and an audit."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .helpers import FORM, start
from .test_workers import engine

NOTHING = ("lost", "doubled", "out of order", "told that events are gone", "hanging", "runs stored with a gap")


@pytest.mark.chaos
@pytest.mark.timeout(120)
@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_streams_demo_meets_every_must_be(store: str) -> None:
    engine(store)
    process = start("demo_streams.py", "--store", store, "--seconds", "9", "--listeners", "50")
    out, err = process.communicate(timeout=110)
    assert (process.returncode, err) == (0, ""), out
    assert f"aiopurgatory {FORM}" in out
    figures = dict(re.findall(r"│ (\w[^│]*?) +│ +(.*?) │", out))
    assert {name: figures[name] for name in NOTHING} == dict.fromkeys(NOTHING, "0")
    assert int(figures["runs abandoned, of the killed worker"]) > 0
    assert int(figures["tokens delivered"].replace(",", "")) > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "fault"),
    [
        (signal.SIGINT, ""),
        pytest.param(signal.SIGINT, "kill -9 the server", marks=pytest.mark.chaos),
        (signal.SIGKILL, ""),
    ],
)
def test_streams_demo_ended_leaves_nothing_behind(how: signal.Signals, fault: str) -> None:
    engine("redis")
    process = start("demo_streams.py", "--store", "redis", "--seconds", "6", "--listeners", "20")
    assert process.stdout is not None
    shown = ""
    while not (fault in shown if fault else shown.count("\n") == 4):
        line = process.stdout.readline()
        assert line
        shown += line
    os.killpg(process.pid, how)
    start_of_end = time.monotonic()
    out, err = process.communicate(timeout=20)  # processes left would hold the pipes
    assert time.monotonic() - start_of_end < 15
    assert (process.returncode, err) == (130 if how == signal.SIGINT else -how, "")
    assert how == signal.SIGKILL or out.endswith("interrupted\n")
    found = re.search(r"@127\.0\.0\.1:(\d+)\S* in (/tmp/\S+);", shown)
    assert found is not None
    assert not Path(found[2]).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(found[1])), 5)


@pytest.mark.parametrize(
    ("what", "value", "expected"),
    [
        ("numbers", [0, 1, 2], True),
        ("numbers", [0, 2], False),
        ("numbers", [0, 1, 1, 2], False),
        ("numbers", [1, 0, 2], False),
        ("end", None, False),
        ("is_told_to_stop", False, False),
        ("gone", 1, False),
    ],
)
def test_streams_demo_verdict_needs_every_must_be(
    module: Callable[[str], ModuleType], what: str, value: Any, expected: bool
) -> None:
    demo, load_of = module("demo_streams"), module("demo_streams_load")
    load = load_of.StreamsLoad(0, 10, 1.0)
    tokens = load_of.TOKENS
    load.killed = 1
    for name, worker, numbers, end in (("a", 1, [0, 1, 2], "abandoned"), ("b", 2, list(range(tokens)), "done")):
        load.producer[name] = worker
        load.stored[name] = load_of.Heard(name, numbers, end, True)
        load.heard += [load_of.Heard(name, list(numbers), end, True) for _ in range(5)]
    load.workers.update({worker: load_of.Worker(1, 1, 1, 1) for worker in (1, 2, 3)})
    load.tally.hung_up, load.tally.answered = 1, 1
    setattr(load.heard[0], what, value)
    assert demo.report(load, 10, "") is expected


@pytest.mark.parametrize("fault", ["gap", "end", "killed"])
def test_streams_demo_verdict_needs_complete_runs(module: Callable[[str], ModuleType], fault: str) -> None:
    load_of = module("demo_streams_load")
    load = load_of.StreamsLoad(0, 10, 1.0)
    load.killed = 1
    numbers = list(range(load_of.TOKENS))
    load.producer, load.stored = {"a": 2}, {"a": load_of.Heard("a", numbers, "done", True)}
    assert (load.incomplete(), load.ended_otherwise()) == (0, 0)
    if fault == "gap":
        del numbers[5]
    else:
        load.stored["a"].end = "failed" if fault == "end" else "abandoned"
    assert (load.incomplete(), load.ended_otherwise()) == ((1, 0) if fault == "gap" else (0, 1))
