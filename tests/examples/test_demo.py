"""Every example runs as its reader would run it, and the demos meet their own demands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from types import ModuleType

import pytest
from private_servers import Redis, program

from .helpers import ENV, end, engine, figures_of, read_lines, start

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
    figures, _ = figures_of("demo.py", "--seconds", "3", "--polls", "200")
    # A poll counts for 50 ms after its client has left, and so may its next one.
    assert 190 <= int(figures["parked at peak"]) <= 220
    assert min(int(figures[what]) for what in ("answered by data", "timed out", "hung up")) > 0
    assert (figures["early"], figures["lost, doubled or out of order"][:5]) == ("0", "0 of ")
    assert figures["pending at the end"] == "0"
    assert int(figures["rows in the journal"].replace(",", "")) > 200


@pytest.mark.slow
def test_demo_opens_with_the_address_of_its_live_page() -> None:
    process = start("demo.py", "--seconds", "3", "--polls", "200")
    found = re.fullmatch(r"Live page: (http://127\.0\.0\.1:\d+/purgatory/), .*\n", read_lines(process, 1))
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
    shown = read_lines(process, lines)  # it has started, it has opened the polls, it is under load
    end(process, signal.SIGINT, shown)


@pytest.mark.slow
def test_demo_killed_takes_its_server_along() -> None:
    process = start("demo.py", "--polls", "200")
    read_lines(process, 3)
    process.kill()
    process.communicate(timeout=10)


# the demo of several workers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_workers_demo_meets_every_must_be(name: str) -> None:
    engine(name)
    figures, out = figures_of("demo_workers.py", "--engine", name, "--seconds", "3", "--polls", "100")
    assert 95 <= int(figures["polls at once, at peak"]) <= 100
    assert figures["workers that did each of the above"] == "3 of 3"
    assert int(figures["events published"]) > 5
    assert re.fullmatch(r"0 of [\d,]+", figures["lost"])
    assert (figures["doubled"], figures["out of order"]) == ("0", "0")
    rows = re.findall(r"│ process \d+ +│ +(\d+) │ +(\d+) │ +(\d+) │ +(\d+) │", out)
    assert len(rows) == 3
    assert all(int(figure) > 0 for row in rows for figure in row)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "lines"), [(signal.SIGINT, 1), (signal.SIGINT, 4), (signal.SIGKILL, 4)])
def test_workers_demo_ended_leaves_nothing_behind(how: signal.Signals, lines: int) -> None:
    name = "redis" if program(*Redis.programs) else "postgres"
    engine(name)
    process = start("demo_workers.py", "--engine", name, "--polls", "100")
    shown = read_lines(process, lines)  # the server starts, it is under load
    assert "@127.0.0.1:" in shown or lines == 1
    end(process, how, shown)


def test_workers_demo_without_a_server_names_the_remedy() -> None:
    nothing = "import private_servers as s; s.program = lambda *_: None; import demo_workers as d; d.main()"
    done = subprocess.run([sys.executable, "-c", nothing], env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "neither PostgreSQL nor Redis is installed; `make programs` does that, by apt as root\n"


# the demo of event streams

NOTHING = ("lost", "doubled", "out of order", "told that events are gone", "hanging", "runs stored with a gap")


@pytest.mark.chaos
@pytest.mark.timeout(120)
@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_streams_demo_meets_every_must_be(store: str) -> None:
    engine(store)
    args = ("--store", store, "--seconds", "9", "--listeners", "50")
    figures, _ = figures_of("demo_streams.py", *args, timeout=110.0)
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
    shown = read_lines(process, 4)
    while fault not in shown:
        line = read_lines(process, 1)
        assert line
        shown += line
    assert "@127.0.0.1:" in shown
    end(process, how, shown)


# the demo of the broker


@pytest.mark.slow
def test_demo_broker_short_version_meets_every_must_be() -> None:
    figures_of("demo_broker.py", "--seconds", "8", "--rate", "100", timeout=55.0)


@pytest.mark.slow
def test_demo_broker_interrupted_ends_at_once_and_says_so() -> None:
    process = start("demo_broker.py", "--seconds", "30")
    while "joins" not in read_lines(process, 1):
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, output.splitlines()[-1]) == (130, "interrupted")


# the audits of the demos


@pytest.mark.parametrize(
    ("got", "lost", "doubled", "disordered"),
    [([0, 1, 2], 0, 0, 0), ([0, 2], 1, 0, 0), ([0, 1, 1, 2], 0, 1, 0), ([1, 0, 2], 0, 0, 1)],
)
def test_demos_count_what_is_lost_doubled_or_out_of_order(
    module: Callable[[str], ModuleType], got: list[int], lost: int, doubled: int, disordered: int
) -> None:
    workers, streams = module("demo_workers_load").WorkersLoad(0, 10, 1.0, {}), module("demo_streams_load")
    workers.published, workers.seen = [{(0,), (1,), (2,)}], [[(number,) for number in got]]
    load = streams.StreamsLoad(0, 1, 1.0)
    load.stored = {"a": streams.Heard("a", [0, 1, 2], "done", True)}
    load.heard = [streams.Heard("a", got, "done", True)]
    for each in (workers, load):
        assert (each.lost(), each.doubled(), each.out_of_order()) == (lost, doubled, disordered)


@pytest.mark.parametrize(("end", "is_told", "hanging"), [("done", True, 0), (None, True, 1), ("done", False, 1)])
def test_demo_of_streams_counts_hanging_listeners(
    module: Callable[[str], ModuleType], end: str | None, is_told: bool, hanging: int
) -> None:
    streams = module("demo_streams_load")
    load = streams.StreamsLoad(0, 1, 1.0)
    load.stored, load.heard = {"a": streams.Heard("a", [0], "done", True)}, [streams.Heard("a", [0], end, is_told)]
    load.producer["a"] = 1
    assert load.hanging() == hanging
