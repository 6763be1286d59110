"""Examples as their reader would run them, in the form under test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import aiopurgatory

EXAMPLES = Path(__file__).parents[2] / "examples"
ENV = os.environ | {"PYTHONPATH": f"{Path(aiopurgatory.__file__).parents[1]}{os.pathsep}{EXAMPLES}"}
FORM = "compiled" if aiopurgatory.COMPILED else "interpreted"


def start(name: str, *args: str) -> subprocess.Popen[str]:
    # A group of its own, to be interrupted as a terminal does it. Processes that it starts hold the pipes, too:
    # communicate() returns only when that is gone as well.
    command = [sys.executable, str(EXAMPLES / name), *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENV, process_group=0)


def read(client: socket.socket) -> tuple[int, str]:
    """The status and the rest of the server's answer before it closes the connection."""
    with client, client.makefile(newline="") as stream:
        return int(stream.readline().split()[1]), stream.read()
