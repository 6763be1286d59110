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
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import aiopurgatory

HERE = Path(__file__).parents[1]
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{HERE}"}


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


class Served:
    """A server process: *server* is ``uvicorn-LOOP-HTTP``, ``hypercorn-LOOP-WORKERS``, ``aiohttp-LOOP``,
    ``granian-LOOP`` or ``gunicorn``.

    ``thread-LOOP-HTTP`` is uvicorn in a thread that is not the main one.
    """

    def __init__(self, server: str, app: str, quiet: bool = True) -> None:
        self.quiet = quiet
        self.clients: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            self.address = listener.getsockname()
            if not server.startswith("granian"):  # which binds by itself
                self.process = self._start(server, app, listener.fileno(), [listener.fileno()])
        if server.startswith("granian"):
            self.process = self._start(server, app, self.address[1], [])
            self._wait_until_it_listens()

    def _start(self, server: str, app: str, number: int, descriptors: list[int]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "web.serve", server, f"web.{app}", str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENV,
            pass_fds=descriptors,
        )

    def _wait_until_it_listens(self) -> None:
        end = time.monotonic() + 30
        while True:
            with suppress(ConnectionRefusedError), socket.create_connection(self.address):
                return
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            said, _ = self.process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if exc_type is None and self.quiet:
            assert said == "", said

    def send(
        self, line: str, headers: dict[str, str] | None = None, body: str = "", length: int | None = None
    ) -> socket.socket:
        client = socket.create_connection(self.address, timeout=20)
        self.clients.append(client)
        fields = {"Host": "x", "Connection": "close", **(headers or {})}
        if body or length:
            fields["Content-Length"] = str(len(body) if length is None else length)
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        client.sendall(f"{line} HTTP/1.1\r\n{head}\r\n{body}".encode())
        return client

    def ask(self, line: str, headers: dict[str, str] | None = None, body: str = "") -> Answered:
        return read(self.send(line, headers, body))

    def poll(self, topic: str, version: int, wait: int = 25) -> socket.socket:
        return self.send(f"GET /polls/{topic}", {"If-None-Match": f'"{version}"', "Prefer": f"wait={wait}"})

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET /statistics").json
        return found

    def wait_for(self, **expected: int) -> None:
        """Wait until statistics() are as *expected*, far less than any of the polls would last."""
        end = time.monotonic() + 30
        while (found := self.statistics()) | expected != found:
            assert time.monotonic() < end, f"{expected} was expected, and after 30 s it is {found}"
            time.sleep(0.01)


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
