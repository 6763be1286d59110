"""Examples as their reader would run them, in the form under test."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from private_servers import Postgres, Redis, Server, free_port, program
from web.helpers import listens, wait_until  # type: ignore[import-not-found]
from web.polls import until as until  # type: ignore[import-not-found]

import aiopurgatory

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs"
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{EXAMPLES}"}
S = TypeVar("S", bound=Server)
FORM = "compiled" if aiopurgatory.COMPILED else "interpreted"


def block(page: str, title: str) -> str:
    """The file *title* of a page of docs/."""
    text = (DOCS / page).read_text("utf-8")
    (found,) = re.findall(rf'^```[^\n]*title="{re.escape(title)}"[^\n]*\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return str(found)


def engine(name: str) -> type[Server]:
    kinds: dict[str, type[Server]] = {"postgres": Postgres, "redis": Redis}
    return installed(kinds[name])


def installed(kind: type[S]) -> type[S]:
    """Return *kind*; skip the test if its program is missing."""
    if program(*kind.programs) is None:
        pytest.skip(f"{' or '.join(kind.programs)} is not installed: make programs")
    return kind


def start(name: str, *args: str) -> subprocess.Popen[str]:
    # A group of its own, to be interrupted as a terminal does it. Processes that it starts also hold the pipes:
    # communicate() returns only when that is gone as well.
    command = [sys.executable, str(EXAMPLES / name), *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENV, process_group=0)


def figures_of(name: str, *args: str) -> dict[str, str]:
    """Run a demo, which must meet its own demands. Returns: its figures."""
    process = start(name, *args)
    out, err = process.communicate(timeout=110.0)
    assert (process.returncode, err) == (0, ""), out
    assert f"aiopurgatory {FORM}" in out
    return dict(re.findall(r"│ (\w[^│]*?) +│ +(.*?) │", out))


def read_lines(process: subprocess.Popen[str], count: int) -> str:
    """The next lines of a demo, each when it is printed."""
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(count))


def end(process: subprocess.Popen[str], how: signal.Signals, shown: str) -> None:
    """Interrupt or kill a demo, as its terminal does. It must leave nothing behind. Args: shown: what it printed."""
    os.killpg(process.pid, how)
    out, err = process.communicate(timeout=20)  # processes left would hold the pipes
    assert (process.returncode, err) == (130 if how == signal.SIGINT else -how, "")
    assert how == signal.SIGKILL or out.endswith("interrupted\n")
    found = re.search(r"@127\.0\.0\.1:(\d+)\S* in (/tmp/\S+);", shown + out)
    if found is not None:  # its server
        assert not Path(found[2]).exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(found[1])), 5)


@contextmanager
def served(folder: Path, app: str, env: Mapping[str, str], *options: str) -> Iterator[str]:
    """The address of uvicorn with *app*, in a process of its own, or in several."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "warning", *options]
    server = subprocess.Popen([*command, "--app-dir", str(folder), app], env=env, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: listens(("127.0.0.1", port)))
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        _, err = server.communicate(timeout=20)
    assert err == ""
    assert server.returncode in (0, -signal.SIGTERM)  # uvicorn ends by the signal, its supervisor does not
