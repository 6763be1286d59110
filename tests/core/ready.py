"""Operations that end at their next try, and the numbers of those that have ended."""

from __future__ import annotations

from typing import Any

from aiopurgatory import Outcome, Purgatory

from .parts import Op


def watch_ready(purgatory: Purgatory, count: int, keys: tuple[str, ...] = ("key",), **hooks: Any) -> list[Op]:
    """Watch *count* operations that end at their next try."""
    ops = [purgatory.watch(Op(60.0, **hooks), keys) for _ in range(count)]
    for op in ops:
        op.ready = True
    return ops


def ended(ops: list[Op]) -> list[int]:
    """Return the numbers of the operations that have completed."""
    return [number for number, op in enumerate(ops) if op.outcome is Outcome.COMPLETED]
