"""Every example runs as its reader would run it, and the demos meet their own demands."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import httpx
import pytest

from .helpers import ENV, end, engine, figures_of, read_lines, start

EXPECTED = {
    "quickstart.py": [
        r"answered by an append: \['order 1'\]",
        r"timed out with \['order 1'\]",
    ],
    "longpoll_server.py": [
        r'POST answers 201 {"offset":0}',
        r'answered by it after \d\.\d s: 200 \[{"order":1}\]',
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


# the demos

Figures = dict[str, int]
#: Of each demo: figures that must be 0, and the least that others must be.
DEMOS: list[tuple[str, tuple[str, ...], Figures]] = [
    (
        "demo.py --seconds 3 --polls 200",
        ("early", "lost, doubled or out of order", "pending at the end"),
        {"parked at peak": 190, "answered by data": 1, "timed out": 1, "hung up": 1, "rows in the journal": 200},
    ),
    *(
        (
            f"demo_workers.py --engine {name} --seconds 6 --polls 100",
            ("lost", "doubled", "out of order"),
            {"polls at once, at peak": 95, "workers that did each of the above": 3, "events published": 5},
        )
        for name in ("postgres", "redis")
    ),
    ("demo_broker.py --seconds 8 --rate 100", (), {}),
]
STREAMS: list[tuple[str, tuple[str, ...], Figures]] = [
    (
        f"demo_streams.py --store {name} --seconds 9 --listeners 50",
        ("lost", "doubled", "out of order", "told that events are gone", "hanging", "runs stored with a gap"),
        {"runs abandoned, of the killed worker": 1, "tokens delivered": 500},
    )
    for name in ("redis", "postgres")
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("command", "none", "least"),
    [pytest.param(*demo, marks=pytest.mark.slow) for demo in DEMOS]
    + [pytest.param(*demo, marks=pytest.mark.chaos) for demo in STREAMS],
)
def test_demo_short_version_meets_every_must_be(command: str, none: tuple[str, ...], least: Figures) -> None:
    for name in {"postgres", "redis"} & set(command.split()):
        engine(name)
    figures = figures_of(*command.split())
    found = {name: int(text.split()[0].replace(",", "")) for name, text in figures.items() if name in {*none, *least}}
    assert found == dict.fromkeys(none, 0) | {name: max(found[name], count) for name, count in least.items()}


@pytest.mark.slow
def test_demo_opens_with_the_address_of_its_live_page() -> None:
    process = start("demo.py", "--seconds", "30", "--polls", "200")
    found = re.fullmatch(r"Live page: (http://127\.0\.0\.1:\d+/purgatory/), .*\n", read_lines(process, 1))
    assert found is not None
    with httpx.Client(timeout=20.0) as client:
        assert "<title>Purgatory</title>" in client.get(found[1]).text
        metrics = client.get(found[1].replace("purgatory", "metrics"), follow_redirects=True).text
        assert 'aiopurgatory_pending_operations{purgatory="polls"}' in metrics
        while client.get(f"{found[1]}state").json()["statistics"]["pending"] < 190:
            pass
    process.kill()  # its server also goes
    process.communicate(timeout=20)


INT, KILL = signal.SIGINT, signal.SIGKILL
DEMO, WORKERS = "demo.py --seconds 10 --polls 200", "demo_workers.py --engine redis --polls 100"
ANSWERS = "demo_streams.py --store redis --seconds 9 --listeners 20"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "how", "lines", "said"),
    [
        *((DEMO, INT, lines, "") for lines in (2, 3, 4)),  # it has started, opened the polls, is under load
        (WORKERS, INT, 1, ""),
        *((WORKERS, how, 4, "@127.0.0.1:") for how in (INT, KILL)),
        *((ANSWERS, how, 4, "@127.0.0.1:") for how in (INT, KILL)),
        pytest.param(ANSWERS, INT, 4, "kill -9 the server", marks=pytest.mark.chaos),
        ("demo_broker.py --seconds 30", INT, 1, "joins"),
    ],
)
def test_demo_ended_leaves_nothing_behind(command: str, how: signal.Signals, lines: int, said: str) -> None:
    if "redis" in command:
        engine("redis")
    process = start(*command.split())
    shown = read_lines(process, lines)
    while said not in shown:
        shown += read_lines(process, 1)
    end(process, how, shown)


def test_workers_demo_without_a_server_names_the_remedy() -> None:
    nothing = "import private_servers as s; s.program = lambda *_: None; import demo_workers as d; d.main()"
    done = subprocess.run([sys.executable, "-c", nothing], env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "neither PostgreSQL nor Redis is installed; `make programs` does that, by apt as root\n"


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
