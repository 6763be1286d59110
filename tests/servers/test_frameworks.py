"""What the page "Long polls" says of each framework: clients that leave are noticed, and so is the stop.

Starlette, FastAPI and aiohttp are in ../web/test_connected_served.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from private_servers import free_port
from web.helpers import Peer, listens, wait_until  # type: ignore[import-not-found]

import aiopurgatory

pytestmark = pytest.mark.servers
HERE = Path(__file__).parent
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{HERE}"}
#: Runs an app that hears stop signals only if the server's handlers are there before close_on_stop() is called.
ONCE = """import runpy, sys
from aiopurgatory.web import signals
signals.AGAIN = ()
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__")"""
COMMANDS = {
    "uvicorn": ["-m", "uvicorn", "{app}:app", "--port", "{port}", "--log-level", "warning"],
    "hypercorn": ["-m", "hypercorn", "-w", "0", "-b", "127.0.0.1:{port}", "--log-level", "warning", "{app}:app"],
    "daphne": ["-m", "daphne", "--bind", "127.0.0.1", "--port", "{port}", "--verbosity", "0", "{app}:app"],
    "own": ["-m", "{app}", "{port}"],
    "own, asked once": ["-c", ONCE, "{app}", "{port}"],
}
ROWS = [
    *(("litestar", "uvicorn"), ("quart", "hypercorn")),
    *(("django", "uvicorn"), ("django", "hypercorn"), ("django", "daphne")),
    *(("falcon", "uvicorn"), ("blacksheep", "uvicorn"), ("sanic", "uvicorn"), ("sanic", "own")),
    ("tornado", "own"),
]


class Served(Peer):
    """A server process, and its clients."""

    def __init__(self, framework: str, server: str) -> None:
        super().__init__()
        for package in (framework, server):
            if not package.startswith("own"):
                pytest.importorskip(package)
        self.address = ("127.0.0.1", free_port())
        command = [part.format(app=f"frameworks.app_{framework}", port=self.address[1]) for part in COMMANDS[server]]
        self.process = subprocess.Popen(
            [sys.executable, *command], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        wait_until(lambda: listens(self.address) or self.process.poll() is not None)

    def text(self, line: str) -> str:
        method, path = line.split()
        with urlopen(Request("http://{}:{}{}".format(*self.address, path), method=method), timeout=60) as answer:
            return str(answer.read().decode().strip('"'))

    def wait(self, clients: int) -> list[socket.socket]:
        """Clients that wait for jobs."""
        found = [self.send("GET /next") for _ in range(clients)]
        wait_until(lambda: self.state()[0] == clients)
        return found

    def state(self) -> list[int]:
        return [int(part) for part in self.text("GET /state").split()]

    def stop(self, failed: bool) -> None:
        self.process.kill()
        said, _ = self.process.communicate()
        assert "Traceback" not in said, said


@pytest.mark.parametrize(("framework", "server"), ROWS, ids=lambda part: str(part))
def test_clients_that_leave_and_the_stop_are_noticed(framework: str, server: str) -> None:
    with Served(framework, server) as app:
        for client in app.wait(5):
            client.close()
        wait_until(lambda: app.state() == [0, 0, 0, 1])  # and not after the 300 s of their waits
        app.text("POST /put")
        assert app.text("GET /next") == "1"  # it went to none of the clients that have left
        waiting = app.wait(3)
        app.process.send_signal(signal.SIGTERM)
        statuses = [client.recv(12) for client in waiting]
        # daphne closes connections without an answer
        assert statuses == ([b""] * 3 if server == "daphne" else [b"HTTP/1.1 503"] * 3)
        app.process.wait(timeout=60)


def test_sanic_hears_a_stop_signal_from_its_start() -> None:
    """Its handlers are there after after_server_start, and not before_server_start."""
    with Served("sanic", "own, asked once") as app:
        (client,) = app.wait(1)
        app.process.send_signal(signal.SIGTERM)
        assert client.recv(12) == b"HTTP/1.1 503"


def test_grpc_clients_that_leave_and_the_stop_are_noticed() -> None:
    grpc = pytest.importorskip("grpc")
    with Served("grpc", "own") as app, grpc.insecure_channel(f"127.0.0.1:{app.address[1]}") as channel:

        def call(method: str) -> str:
            return str(channel.unary_unary(f"/jobs/{method}")(b"", timeout=60).decode())

        def wait(clients: int) -> list[Any]:
            found = [channel.unary_unary("/jobs/next").future(b"") for _ in range(clients)]
            wait_until(lambda: call("state").startswith(f"{clients} "))
            return found

        for client in wait(5):
            client.cancel()
        wait_until(lambda: call("state") == "0 0 0 1")
        call("put")
        assert call("next") == "1"
        waiting = wait(3)
        app.process.send_signal(signal.SIGTERM)
        assert {client.exception(timeout=60).code() for client in waiting} == {grpc.StatusCode.UNAVAILABLE}
        app.process.wait(timeout=60)


def test_starlettes_websockets_that_leave_and_the_stop_are_noticed() -> None:
    websockets = pytest.importorskip("websockets")
    connect = pytest.importorskip("websockets.sync.client").connect
    with Served("starlette", "uvicorn") as app, ExitStack() as stack:

        def wait(clients: int) -> list[Any]:
            url = f"ws://127.0.0.1:{app.address[1]}/socket"
            found = [stack.enter_context(connect(url)) for _ in range(clients)]
            for client in found:
                client.send("a job, please")
            wait_until(lambda: app.state()[0] == clients)
            return found

        for client in wait(5):
            client.close()
        wait_until(lambda: app.state() == [0, 0, 0, 1])
        (first,) = wait(1)
        app.text("POST /put")
        assert first.recv(timeout=60) == "1"
        waiting = wait(2)
        app.process.send_signal(signal.SIGTERM)
        for client in waiting:
            with pytest.raises(websockets.ConnectionClosed, match="service restart"):
                client.recv(timeout=60)
        app.process.wait(timeout=60)
