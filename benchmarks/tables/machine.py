"""Describes the machine of a run, and prints its lines of JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO


def machine() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    found = {"processor": processor, "cores": os.cpu_count(), "system": platform.platform()}
    return {"table": "machine", **found, "Python": platform.python_version(), "date": date.today().isoformat()}


def versions(packages: Iterable[str], programs: Iterable[str | None] = ()) -> dict[str, str]:
    """Those of Python, of the *packages* that are installed, and of *programs*, asked by ``--version``."""
    found = {"Python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    for program in filter(None, programs):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        found[Path(program).name] = next((word.removeprefix("v=") for word in said.split() if _is_version(word)), "?")
    return found


def _is_version(word: str) -> bool:
    return word.removeprefix("v=")[:1].isdigit()


class Printer:
    """Prints each line of a table at once, and keeps it. Args: path: also write the lines to this file."""

    def __init__(self, table: str, path: str | None) -> None:
        self.found: list[dict[str, Any]] = []
        self._table = table
        self._file: TextIO | None = None if path is None else Path(path).open("w")  # noqa: SIM115 closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def machine(self, packages: Iterable[str], programs: Iterable[str | None]) -> None:
        self._write({**machine(), "versions": versions(packages, programs)})

    def lines(self, lines: Iterable[dict[str, Any]]) -> None:
        for line in lines:
            self._write({"table": self._table, **line})

    def _write(self, line: dict[str, Any]) -> None:
        self.found.append(line)
        text = json.dumps(line)
        print(text, flush=True)
        if self._file is not None:
            self._file.write(text + "\n")
            self._file.flush()
