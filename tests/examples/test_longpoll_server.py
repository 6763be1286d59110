"""The long-poll server of the examples, under uvicorn."""

from __future__ import annotations

import json
import math
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from .helpers import ENV, read

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
    assert served.answer("POST /topics/payments", "1")[1].endswith('{"offset":0}')
    assert served.answer("POST /topics/orders", '{"id": 7}')[1].endswith('{"offset":0}')
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
    for query in ["offset=-1", "offset=x", f"offset={'9' * 5_000}", "wait=nan", "wait=long"]:
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
    served.wait_for(pending=5, watched_entries=5, cancelled=15)
    for client in clients[15:]:
        leave(client)
    served.wait_for(pending=0, keys=0, cancelled=20)


def test_hang_up_before_parking_leaves_nothing(served: Served, leave: Callable[[socket.socket], None]) -> None:
    for _ in range(20):
        leave(served.send("GET /topics/orders?offset=0&wait=30"))
    served.park(1)
    served.wait_for(pending=1, watched_entries=1, expired=0)


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
