"""Every example runs as its reader would run it, and the demo meets its own demands."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from .helpers import FORM, start

EXPECTED = {
    "quickstart.py": [
        r"answered by an append: \['order 1'\]",
        r"timed out with \['order 1'\]",
    ],
    "longpoll_server.py": [
        r'POST answers 201 {"offset":0}',
        r'answered by it after 0\.\d s: 200 \[{"order":1}\]',
        r"timed out after \d\.\d s: 204",
        r"hung up: its poll was gone within \d\.\d s",
        r"told to stop: 100 polls answered within \d\.\d s: 503 retry-after: 1",
    ],
    "replication.py": [
        r"acked by all after \d\.\d\d s: {'orders': 'NONE', 'payments': 'NONE'}",
        r"a follower has stopped, \d\.\d\d s: {'orders': 'NONE', 'payments': 'REQUEST_TIMED_OUT'}",
        r"leadership lost, \d\.\d\d s: NotLeaderError: this broker no longer leads payments",
    ],
    "join_group.py": [
        r"generation 1: ann, bob, cy\n",
        r"generation 2: ann, bob, cy, dan\n",
        r"generation 3: ann, bob, dan; dropped: cy\n",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_example_runs_and_tells(name: str) -> None:
    process = start(name)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    for line in EXPECTED[name]:
        assert re.search(line, out), out


# the demo


@pytest.mark.slow
def test_demo_small_version_meets_every_must_be() -> None:
    process = start("demo.py", "--seconds", "3", "--polls", "200")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, ""), out
    assert f"aiopurgatory {FORM}" in out
    figures = dict(re.findall(r"│ (\w[^│]*?) +│ +(.*?) │", out))
    # A poll counts for 50 ms after its client has left, and so may its next one.
    assert 190 <= int(figures["parked at peak"]) <= 220
    assert min(int(figures[what]) for what in ("answered by data", "timed out", "hung up")) > 0
    assert (figures["early"], figures["lost, doubled or out of order"][:5]) == ("0", "0 of ")
    assert figures["pending at the end"] == "0"
    assert int(figures["rows in the journal"].replace(",", "")) > 200


@pytest.mark.slow
def test_demo_opens_with_the_address_of_its_live_page() -> None:
    process = start("demo.py", "--seconds", "3", "--polls", "200")
    assert process.stdout is not None
    found = re.fullmatch(r"Live page: (http://127\.0\.0\.1:\d+/purgatory/), .*\n", process.stdout.readline())
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=20) as page:
        assert b"<title>Purgatory</title>" in page.read()
    with urllib.request.urlopen(found[1].replace("purgatory", "metrics"), timeout=20) as metrics:
        assert b'aiopurgatory_pending_operations{purgatory="polls"}' in metrics.read()
    pending = 0
    while pending < 190:
        with urllib.request.urlopen(f"{found[1]}state", timeout=20) as state:
            pending = json.loads(state.read())["statistics"]["pending"]
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, ""), out


@pytest.mark.slow
@pytest.mark.parametrize("lines", [2, 3, 4])
def test_demo_interrupted_leaves_nothing_behind(lines: int) -> None:
    process = start("demo.py", "--seconds", "5", "--polls", "200")
    assert process.stdout is not None
    for _ in range(lines):  # it has started, it has opened the polls, it is under load
        process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    assert out.endswith("interrupted\n")


@pytest.mark.slow
def test_demo_killed_takes_its_server_along() -> None:
    process = start("demo.py", "--polls", "200")
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.kill()
    process.communicate(timeout=10)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("peak", 9),
        ("tally.answered", 0),
        ("tally.timed_out", 0),
        ("tally.hung_up", 0),
        ("out_of_order", 1),
        ("seen", [2] * 9 + [1]),
        ("server_early", 1),
        ("pending", 1),
        ("journal", 59),
        ("nothing", None),
    ],
)
def test_demo_verdict_needs_every_must_be(module: Callable[[str], ModuleType], path: str, value: object) -> None:
    demo = module("demo")
    load = demo.Load(0, 10, 1.0)
    load.published, load.seen = [2], [2] * 10
    load.tally.answered = load.tally.timed_out = load.tally.hung_up = 20
    others: dict[str, Any] = {"peak": 10, "server_early": 0, "pending": 0, "journal": 60}
    if path in others:
        others[path] = value
    else:
        owner, _, name = path.rpartition(".")
        setattr(getattr(load, owner) if owner else load, name, value)
    server = {
        "runs": "",
        "lateness": [0.001],
        "early": others["server_early"],
        "statistics": {"pending": others["pending"], "completed": 20, "expired": 20, "cancelled": 20, "failed": 0},
        "journal": others["journal"],
    }
    assert demo.report(load, others["peak"], server) is (path == "nothing")
