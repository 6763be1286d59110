"""Starts a broker and its load generator, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buses.processes import Process

ROOT = Path(__file__).resolve().parents[2]


def python_path(compiled: str | None) -> str:
    """PYTHONPATH of these processes. Args: compiled: folder of the compiled library; None: that on the path."""
    folders = [os.path.abspath(compiled)] if compiled else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*filter(None, folders), str(ROOT / "examples")])


@contextmanager
def serving(
    broker: str, *, counts: bool = False, partitions: int = 2, **settings: Any
) -> Iterator[tuple[Process, int]]:
    """A broker, ours or event, and its port. Args: settings: of its partitions."""
    config = {"broker": broker, "counts": counts, "partitions": partitions, "settings": settings}
    with started("brokers.worker", config) as process:
        yield process, process.answer()


@contextmanager
def started(module: str, config: dict[str, Any]) -> Iterator[Process]:
    process = Process(module, config)
    try:
        yield process
    finally:
        process.close()
