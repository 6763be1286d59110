"""Keeps the cores awake with processes that yield to all others.

A sleeping core of a virtual machine takes long to wake up. Measured, that doubles or triples each latency, and the CPU
time of the first run. It is no property of the bus, and varies from hour to hour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPIN = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile os.getppid() == {}: pass"


@contextmanager
def cores_awake() -> Iterator[None]:
    command = [sys.executable, "-c", SPIN.format(os.getpid())]
    spinners = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
