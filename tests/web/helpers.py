"""Servers in processes of their own, and clients on raw sockets."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from private_servers import free_port

import aiopurgatory

Headers = dict[str, str] | None
Leave = Callable[[socket.socket], None]
HERE = Path(__file__).parents[1]
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{HERE}"}


#: The commands of servers: {0} and {1} are the parts of a server's name, {place} a file descriptor or a port.
COMMANDS = {
    "uvicorn": "uvicorn --factory {app} --fd {place} --loop {0} --http {1} --log-level warning",
    "hypercorn": "hypercorn {app}() -b fd://{place} -k {0} -w {1} --graceful-timeout {seconds} --backlog 4096"
    " --log-level WARNING --error-logfile -",
    "granian": "granian --factory {app} --port {place} --interface asgi --loop {0} --no-log --workers-kill-timeout 8",
    "gunicorn": "gunicorn {app}() -b fd://{place} -k uvicorn_worker.UvicornWorker --log-level critical"
    " --no-control-socket",
    "aiohttp": "web.serve {server} {app} {place}",
    "thread": "web.serve {server} {app} {place}",
}
#: What may follow: as uvicorn-uvloop-httptools-limited.
MORE = {
    "recycled": "--limit-max-requests 20 --timeout-graceful-shutdown 1",
    "limited": "--limit-concurrency 11 --log-level error",
    "full": "--backpressure 11",
}


def command(server: str, app: str, place: int) -> list[str]:
    name, *parts = server.split("-")
    line = COMMANDS[name].format(
        *parts, app=f"web.{app}", place=place, server=server, seconds=1 if parts[-1:] == ["1"] else 10
    )
    return [sys.executable, "-m", *line.split(), *MORE.get(parts[-1] if parts else "", "").split()]


class Answered:
    """A server's answer on a connection, until it closed it."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split()[1]) if status else 0
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def json(self) -> Any:
        assert self.status == 200, (self.status, self.body)
        return json.loads(self.body)


def wait_until(
    holds: Callable[[], object], told: Callable[[], object] = lambda: "it takes too long", seconds: float = 30.0
) -> None:
    """Wait for what no event announces. *told*: what to say if it takes longer."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(0.01)


def listens(address: tuple[str, int]) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(address):
        return True
    return False


class Peer(ABC):
    """Processes that answer at *address*."""

    address: tuple[str, int]

    def __init__(self) -> None:
        self.clients: list[socket.socket] = []

    def send(self, line: str, headers: Headers = None, body: str = "", host: str = "") -> socket.socket:
        """Send a request, from the address *host*."""
        client = socket.create_connection(self.address, timeout=20, source_address=(host, 0) if host else None)
        self.clients.append(client)
        fields = {"Host": "x", "Connection": "close", **(headers or {})}
        if body or line.startswith("POST"):
            fields["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        client.sendall(f"{line} HTTP/1.1\r\n{head}\r\n{body}".encode())
        return client

    def ask(self, line: str, headers: Headers = None, body: str = "", host: str = "") -> Answered:
        return read(self.send(line, headers, body, host=host))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for client in self.clients:
            client.close()
        self.stop(failed=failure[0] is not None)

    @abstractmethod
    def stop(self, failed: bool) -> None: ...


class Served(Peer):
    """A server process: *server* is ``uvicorn-LOOP-HTTP``, ``hypercorn-LOOP-WORKERS``, ``aiohttp-LOOP``,
    ``granian-LOOP`` or ``gunicorn``.

    ``thread-LOOP-HTTP`` is uvicorn in a thread that is not the main one.
    """

    def __init__(self, server: str, app: str, quiet: bool = True) -> None:
        super().__init__()
        self.quiet = quiet
        self.address = ("127.0.0.1", free_port())
        if server.startswith("granian"):  # which binds by itself
            self.process = self._start(server, app, self.address[1], [])
            wait_until(lambda: listens(self.address))
            return
        with socket.create_server(self.address, backlog=4096) as listener:
            self.process = self._start(server, app, listener.fileno(), [listener.fileno()])

    def _start(self, server: str, app: str, number: int, descriptors: list[int]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(server, app, number),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENV,
            pass_fds=descriptors,
        )

    def stop(self, failed: bool) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            said, _ = self.process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert failed or not self.quiet or said == "", said

    def poll(self, topic: str, version: int, wait: int = 25) -> socket.socket:
        return self.send(f"GET /polls/{topic}", {"If-None-Match": f'"{version}"', "Prefer": f"wait={wait}"})

    def park(self, number: int, topic: str = "orders", wait: int = 25) -> list[socket.socket]:
        """Polls that wait. {}: a number up to 100."""
        clients = [self.poll(topic.format(i % 100), 0, wait) for i in range(number)]
        self.wait_for(pending=number)
        return clients

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET /statistics").json
        return found

    def wait_for(self, **expected: int) -> None:
        """Wait until statistics() are as *expected*, far less than any of the polls would last."""
        wait_until(
            lambda: expected.items() <= self.statistics().items(), lambda: (expected, "but it is", self.statistics())
        )


def check_leaving(served: Served, line: str, leave: Leave) -> None:
    """Six clients send a request that waits, and leave."""
    before = served.statistics()["cancelled"]
    clients = [served.send(line, {"If-None-Match": '"0"'}) for _ in range(6)]
    served.wait_for(pending=6)
    for client in clients[:4]:
        leave(client)
    served.wait_for(pending=2, watched_entries=2, cancelled=before + 4)
    for client in clients[4:]:
        leave(client)
    served.wait_for(pending=0, keys=0, buckets=0, cancelled=before + 6)


def check_news_for_the_left(served: Served, path: str) -> None:
    """Twenty clients leave while they are answered."""
    failed = served.statistics()["failed"]
    clients = [served.send(f"GET /{path}/race-{i}", {"If-None-Match": '"0"'}) for i in range(20)]
    served.wait_for(pending=20)
    posts = []
    for i, client in enumerate(clients):
        posts.append(served.send(f"POST /polls/race-{i}", body="x"))
        client.close()
    assert {read(post).status for post in posts} == {200}
    served.wait_for(pending=0, keys=0, failed=failed)


def each(cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Run a test against the server and app of each case; see the fixture ``served``."""
    return pytest.mark.parametrize("served", cases, ids="-".join, indirect=True, scope="module")


def read(client: socket.socket) -> Answered:
    """The answer; its status is 0 if the server closed the connection without one."""
    with client:
        raw = b""
        while chunk := client.recv(65536):
            raw += chunk
    return Answered(raw)


def allow_open_files() -> int:
    """As many as the system lets us. Returns: how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
