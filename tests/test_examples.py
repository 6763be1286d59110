"""Every example runs as its reader would run it, in the form under test; the long-poll server is served by uvicorn."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import aiopurgatory

EXAMPLES = Path(__file__).parents[1] / "examples"
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{EXAMPLES}"}
FORM = "compiled" if aiopurgatory.COMPILED else "interpreted"


def start(name: str, *args: str) -> subprocess.Popen[str]:
    # A group of its own, to be interrupted as a terminal does it. Whatever it starts in turn holds the pipes, too:
    # communicate() returns only when that is gone as well.
    command = [sys.executable, str(EXAMPLES / name), *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENV, process_group=0)


EXPECTED = {
    "quickstart.py": [
        r"answered by an append: \['order 1'\]",
        r"timed out with \['order 1'\]",
    ],
    "longpoll_server.py": [
        r'POST answers 201 {"offset":0,"answered":1}',
        r'answered by it after 0\.\d s: 200 \[{"order":1}\]',
        r"timed out after \d\.\d s: 204",
        r"hung up: 1 poll parked before, 0 after",
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
    # A poll whose client has left counts for 50 ms yet, and so may its next one.
    assert 190 <= int(figures["parked at peak"]) <= 220
    assert min(int(figures[what]) for what in ("answered by data", "timed out", "hung up")) > 0
    assert (figures["early"], figures["lost, doubled or out of order"][:5]) == ("0", "0 of ")
    assert figures["pending at the end"] == "0"
    assert int(figures["rows in the journal"].replace(",", "")) > 200


@pytest.mark.slow
def test_demo_opens_with_the_address_of_its_live_page() -> None:
    process = start("demo.py", "--seconds", "3", "--polls", "200")
    assert process.stdout is not None
    found = re.fullmatch(r"See it live: (http://127\.0\.0\.1:\d+/purgatory/), .*\n", process.stdout.readline())
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


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("peak", 9),
        ("tally.answered", 0),
        ("tally.timed_out", 0),
        ("tally.hung_up", 0),
        ("tally.out_of_order", 1),
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


# the long-poll server, under uvicorn

SERVE = """
import socket, sys
from longpoll_server import Server, create_app
server = Server(create_app())
server.config.loop = sys.argv[2]
server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


class Served:
    """longpoll_server.py in a process of its own."""

    def __init__(self, loop: str) -> None:
        self.clients: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
            self.address = listener.getsockname()
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(listener.fileno()), loop],
                stderr=subprocess.PIPE,
                text=True,
                env=ENV,
                pass_fds=[listener.fileno()],
            )

    def send(self, line: str, body: str = "", length: int | None = None) -> socket.socket:
        client = socket.create_connection(self.address, timeout=20)
        self.clients.append(client)
        length = len(body) if length is None else length
        client.sendall(
            f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}".encode()
        )
        return client

    def answer(self, line: str, body: str = "") -> tuple[int, str]:
        return read(self.send(line, body))

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.answer("GET /statistics")[1].partition("\r\n\r\n")[2])
        return found

    def wait_for(self, **expected: int) -> None:
        """Wait until statistics() are as *expected*, far less than any of the polls would last."""
        end = time.monotonic() + 10
        while (found := self.statistics()) | expected != found:
            assert time.monotonic() < end, f"{expected} was expected, and after 10 s it is {found}"
            time.sleep(0.01)

    def park(self, count: int) -> list[socket.socket]:
        clients = [self.send("GET /topics/orders?offset=0&wait=30") for _ in range(count)]
        self.wait_for(pending=count)
        return clients


def read(client: socket.socket) -> tuple[int, str]:
    """The status and the rest of what the server answers before it closes the connection."""
    with client, client.makefile(newline="") as stream:
        return int(stream.readline().split()[1]), stream.read()


@pytest.fixture(params=["asyncio", "uvloop"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    server = Served(request.param)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        _, err = server.process.communicate(timeout=10)
        for client in server.clients:
            client.close()
    assert (server.process.returncode, err) == (-signal.SIGTERM, "")


def test_poll_parked_is_answered_by_an_append(served: Served) -> None:
    (client,) = served.park(1)
    assert served.answer("POST /topics/payments", "1")[1].endswith('{"offset":0,"answered":0}')
    assert served.answer("POST /topics/orders", '{"id": 7}')[1].endswith('{"offset":0,"answered":1}')
    status, answer = read(client)
    assert (status, answer.endswith('[{"id":7}]')) == (200, True)
    assert served.answer("GET /topics/orders?offset=0")[1].endswith('[{"id":7}]')


@pytest.mark.parametrize("wait", [0.0, 0.2])
def test_poll_without_data_ends_with_204_in_time(served: Served, wait: float) -> None:
    start = time.monotonic()
    assert served.answer(f"GET /topics/orders?offset=0&wait={wait}")[0] == 204
    assert time.monotonic() - start >= wait / 3  # which is an upper bound
    served.wait_for(pending=0, expired=int(wait > 0))  # with no time to wait it is answered without parking


def test_bad_request_is_refused(served: Served) -> None:
    for query in ["offset=-1", "offset=x", "wait=nan", "wait=long"]:
        assert served.answer(f"GET /topics/orders?{query}")[0] == 400
    for body in ["{", "NaN", '{"price": Infinity}', "[" * 100_000, "\xff"]:
        assert served.answer("POST /topics/orders", body)[0] == 400
    served.wait_for(pending=0, keys=0)


@pytest.mark.parametrize(("wait", "timeout"), [(1e9, 25.0), (math.inf, 25.0), (5.0, 5.0), (0.0, 0.0)])
def test_poll_wait_is_clamped(module: Callable[[str], ModuleType], wait: float, timeout: float) -> None:
    assert module("longpoll_server").POLICY.applied(wait) == timeout


def test_hang_up_frees_the_operation_at_once(served: Served, leave: Callable[[socket.socket], None]) -> None:
    clients = served.park(20)
    for client in clients[:15]:
        leave(client)
    served.wait_for(pending=5, watched=5, cancelled=15)
    for client in clients[15:]:
        leave(client)
    served.wait_for(pending=0, keys=0, cancelled=20)


def test_hang_up_before_parking_leaves_nothing(served: Served, leave: Callable[[socket.socket], None]) -> None:
    for _ in range(20):
        leave(served.send("GET /topics/orders?offset=0&wait=30"))
    served.park(1)
    served.wait_for(pending=1, watched=1, expired=0)


def test_hang_up_during_upload_appends_nothing(served: Served) -> None:
    served.send("POST /topics/orders", "[1,", length=100).close()
    assert served.answer("GET /topics/orders?offset=0&wait=0.1")[0] == 204


def test_hang_up_with_the_answer_on_its_way_is_no_error(served: Served) -> None:
    clients = served.park(20)
    posted = served.send("POST /topics/orders", "1")
    for client in clients:
        client.close()
    assert read(posted)[0] == 201
    served.wait_for(pending=0, keys=0, failed=0)


def test_sigterm_answers_every_parked_poll(served: Served) -> None:
    clients = served.park(200)
    start = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    for status, rest in map(read, clients):
        assert status == 503
        assert "retry-after: 1" in rest
    served.process.wait(timeout=10)
    assert time.monotonic() - start < 10  # of 30 s that the polls would have waited
