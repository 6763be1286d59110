"""The servers that demos and tests start for themselves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = "from private_servers import free_port; print(*{free_port() for _ in range(2_000)}, flush=True); input()"


@pytest.mark.parametrize("is_alive", [True, False])
def test_free_port_is_of_one_living_process(is_alive: bool) -> None:
    def start() -> tuple[subprocess.Popen[str], set[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert process.stdout is not None
        return process, set(process.stdout.readline().split())

    first, mine = start()
    if not is_alive:
        first.communicate("\n")
    second, others = start()
    for process in (first, second):
        process.communicate("\n" if process.poll() is None else None)
    assert bool(mine & others) != is_alive
