"""Starts workers in processes of their own, and sends them commands."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from types import TracebackType
from typing import Any, Self

from .events import ROW, keys_for
from .servers import Server, cpu

#: Where the package is.
HERE = Path(__file__).resolve().parents[1]


class Process:
    """A member (see member.py). Args: module: the module to run."""

    def __init__(self, module: str, config: dict[str, Any]) -> None:
        command = [sys.executable, "-m", module, json.dumps(config)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=HERE)

    def tell(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return json.loads(line)

    def ask(self, *command: object) -> Any:
        self.tell(*command)
        return self.answer()

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Fleet:
    """Processes that share a table of events.

    Args:
        polls: parked in all; rounded up so that each worker has as many.
        module: the module that each process runs.
        more: settings of the processes.
    """

    def __init__(self, server: Server, workers: int, polls: int, module: str = "buses.worker", **more: Any) -> None:
        self.server, self.workers, self.module = server, workers, module
        self.keys = keys_for(polls, workers)
        self.config = {"heartbeat": 5.0, "timeout": 5.0, **more, "url": server.url()}
        self.config |= {"workers": workers, "keys": self.keys}
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        self._table = tempfile.NamedTemporaryFile()
        self._table.write(bytes(ROW * self.keys))
        self._table.flush()
        try:
            for number in range(self.workers):
                config = self.config | {"table": self._table.name, "number": number}
                self.processes.append(Process(self.module, config))
            for process in self.processes:
                process.answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in self.processes:
            process.close()
        self._table.close()

    def ask_all(self, *command: object) -> list[Any]:
        for process in self.processes:
            process.tell(*command)
        return [process.answer() for process in self.processes]

    def set_rate(self, events: float) -> None:
        """Publish *events* per second, all workers together."""
        self.ask_all("rate", events / self.workers)

    def watch(self, events: float, seconds: float, warm_up: float = 1.0) -> dict[str, Any]:
        """Publish *events* per second for a while.

        Returns: the latencies of all workers, ``local`` and ``remote``, in us; the rate reached; the mean CPU share of
            a worker, and the server's.
        """
        self.set_rate(events)
        time.sleep(warm_up)
        before, server_before, start = self.ask_all("report"), cpu(self.server), time.monotonic()
        time.sleep(seconds)
        after, server_after, elapsed = self.ask_all("report"), cpu(self.server), time.monotonic() - start
        self.set_rate(0)
        pairs = list(zip(before, after, strict=True))
        return {
            "local": sorted(each for answer in after for each in answer["local"]),
            "remote": sorted(each for answer in after for each in answer["remote"]),
            "events_per_second": sum(last["published"] - first["published"] for first, last in pairs) / elapsed,
            "worker_share": mean(last["cpu"] - first["cpu"] for first, last in pairs) / elapsed,
            "server_share": (server_after - server_before) / elapsed,
            "form": after[0]["form"],
        }
