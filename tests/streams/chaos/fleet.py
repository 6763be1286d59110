"""The processes of a chaos test: workers, and a producer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..conftest import until

TESTS = Path(__file__).parents[2]


class Fleet:
    """*workers* processes that serve the log at *url*, and a producer.

    Args:
        log: options of each log.
    """

    def __init__(
        self,
        url: str,
        *,
        workers: int = 3,
        log: dict[str, Any] | None = None,
    ) -> None:
        self._url, self._log = url, log or {}
        self.ports: list[int] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.producer: subprocess.Popen[bytes] | None = None
        self._acked = ""
        self._pipe, self._write = os.pipe()
        for _ in range(workers):
            listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            self.ports.append(listener.getsockname()[1])
            self.workers.append(self._start("worker", listener.fileno(), self._log))
            listener.close()

    def _start(self, role: str, descriptor: int, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "streams.chaos.served", role, self._url, str(descriptor)]
        return subprocess.Popen([*command, json.dumps(options)], pass_fds=[descriptor], cwd=TESTS)

    async def until_up(self) -> None:
        """Wait until each worker answers."""
        for port in self.ports:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(30):
                await reader.readline()
            writer.close()

    def signal(self, number: int) -> None:
        """Send a signal to every worker."""
        for worker in self.workers:
            worker.send_signal(number)

    def produce(self, topics: list[str], events: int, rate: float, lease: float = 15.0) -> None:
        """Start the producer."""
        options = {"topics": topics, "events": events, "rate": rate, "lease": lease, "log": self._log}
        self.producer = self._start("producer", self._write, options)

    def acked(self, topic: str) -> list[str]:
        """Return the events acknowledged to the producer of *topic*, and then the reason if it could not go on."""
        os.set_blocking(self._pipe, False)
        while True:
            try:
                self._acked += os.read(self._pipe, 1 << 16).decode()
            except BlockingIOError:
                break
        return [line.split()[1] for line in self._acked.splitlines() if line.split()[0] == topic]

    async def until_acked(self, topic: str, events: int) -> None:
        """Wait until so many events of *topic* were acknowledged."""
        await until(lambda: len(self.acked(topic)) >= events, 30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for process in [*self.workers, *([self.producer] if self.producer else [])]:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(10)
        os.close(self._pipe)
        os.close(self._write)
