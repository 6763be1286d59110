"""The broker in a process of its own, as its user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import aiopurgatory

ROOT: Final = Path(__file__).parents[3]
ENV: Final = os.environ | {"PYTHONPATH": str(Path(aiopurgatory.__file__).parents[1])}
#: Seconds after which something that is to happen soon has not happened.
PATIENCE: Final = 20.0


class Served:
    """A broker; ``with`` stops it.

    Args: options: of its command line.
    """

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "examples.broker", *options]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # a pipe that nobody reads gets full, and blocks it
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=ROOT, env=ENV)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"127\.0\.0\.1:(\d+)  metrics (http://\S+)  live page (http://\S+)\n", line)
        assert found is not None, line + str(self.wait())
        self.port = int(found[1])
        self.metrics_url, self.page_url = found[2], found[3]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            self.process.kill()
            self._log.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code after a signal, and its log."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Its exit code, and its log."""
        self.process.communicate(timeout=PATIENCE)
        self._log.seek(0)
        return self.process.returncode, self._log.read()

    def metric(self, name: str, purgatory: str) -> int:
        """A value of the purgatory fetch, produce or group."""
        start = f'aiopurgatory_{name}{{purgatory="{purgatory}"}} '
        (line,) = [line for line in get(self.metrics_url).splitlines() if line.startswith(start)]
        return int(float(line.removeprefix(start)))

    def pending(self, purgatory: str) -> int:
        """How many operations wait there."""
        return self.metric("pending_operations", purgatory)

    def sockets(self) -> int:
        """How many it has open, with the listening ones."""
        count = 0
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += os.readlink(each).startswith("socket:")
        return count

    def cpu(self) -> float:
        """Seconds of CPU time that it has taken."""
        spent = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read(), "utf-8")


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Raises: AssertionError: *condition* does not come true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.02)
