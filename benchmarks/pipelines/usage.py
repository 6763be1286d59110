"""Measures CPU time and memory of a process tree, including the JVM and its workers. Linux only.

Once a process has ended, wait4() has the figures of its whole tree, with two exceptions. A JVM briefly outlives the
Python that started it: this process becomes its parent (PR_SET_CHILD_SUBREAPER) to be told. And the daemon that forks
Spark's Python workers ignores SIGCHLD, so Linux forgets their usage: a thread reads it from /proc twice a second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
#: Seconds between two polls of workers for which nobody waits.
_PAUSE = 0.5


@dataclass(frozen=True)
class Ended:
    """The usage of a process tree, without Tree.forgotten(). ``wall`` ends with the process itself."""

    output: str
    status: int
    wall: float
    cpu: float


def run_tree(command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> Ended:
    """Run *command* until it and all that it started have ended. No other child may be running."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile("w+") as output:  # the JVM would keep a pipe open
        begun = time.monotonic()
        child = subprocess.Popen(command, stdout=output, cwd=folder, env=environment)
        cpu = wall = 0.0
        while True:
            try:
                pid, status, used = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu += used.ru_utime + used.ru_stime
            if pid == child.pid:
                wall, child.returncode = time.monotonic() - begun, os.waitstatus_to_exitcode(status)
        output.seek(0)
        return Ended(output.read(), child.returncode, wall, cpu)


class Tree:
    """This process and everything that it starts within the block."""

    def __init__(self) -> None:
        #: CPU time by process and start, of those with a parent that ignores SIGCHLD.
        self._forgotten: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def cpu(self) -> float:
        """Return the seconds used so far, including by ended processes."""
        with self._lock:
            living = {}
            for pid in tree():
                fields = _fields(pid)
                if fields:
                    name = pid, fields[19]
                    living[name] = sum(int(ticks) for ticks in fields[11:15]) / _TICKS
                    if name in self._forgotten or _ignores_children(int(fields[1])):
                        self._forgotten[name] = living[name]
            ended = self._forgotten.keys() - living.keys()
            return sum(living.values()) + sum(self._forgotten[name] for name in ended)

    def forgotten(self) -> float:
        """Return the seconds that wait4() will not report."""
        self.cpu()
        with self._lock:
            return sum(self._forgotten.values())

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            self.cpu()


def peaks_of_tree() -> dict[str, float]:
    """The most memory that each living process has had, in MB, added up: ``java`` and ``all``.

    Pages that processes share are counted in each of them.
    """
    found = {"java": 0.0, "all": 0.0}
    for pid in tree():
        lines = _read(pid, "status").splitlines()
        peak = sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
        found["all"] += peak
        found["java"] += peak if "Name:\tjava" in lines else 0
    return found


def tree() -> list[int]:
    """This process and its descendants."""
    parents = {int(name): _fields(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    children: dict[int, list[int]] = {}
    for pid, fields in parents.items():
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def _ignores_children(pid: int) -> bool:
    found = (line.split()[1] for line in _read(pid, "status").splitlines() if line.startswith("SigIgn:"))
    return any(int(mask, 16) >> (signal.SIGCHLD - 1) & 1 for mask in found)


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the name; none if the process is gone."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
