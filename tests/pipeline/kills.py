"""Runs that end between two writes, as by kill -9."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter


class Killed(BaseException):
    """The process ends."""


def killing(patch: pytest.MonkeyPatch, at: int, among: Callable[[str], bool] = lambda path: True) -> list[str]:
    """Let a write end the run: the one with the number *at*, *among* the writes to some paths.

    Returns: the paths of those before.
    """
    written: list[str] = []
    real = DataFrameWriter.parquet

    def parquet(self: DataFrameWriter, path: str, *args: Any, **options: Any) -> None:
        if among(path):
            if len(written) == at:
                raise Killed
            written.append(path)
        real(self, path, *args, **options)

    patch.setattr(DataFrameWriter, "parquet", parquet)
    return written


def in_turn(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """In place of at_once(): no thread writes on when another is killed."""
    return [call() for call in calls]
