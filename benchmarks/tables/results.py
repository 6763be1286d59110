"""Read the lines that a run measured, and select them by label."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Line = dict[str, Any]


def is_sustained(line: Line) -> bool:
    """Did it sustain the target rate, with 99 % of time-outs at most 20 ms late?"""
    return bool(line["achieved_per_second"] >= 0.98 * line["rate"] and line["late_p99_ms"] <= 20)


class Results:
    """The lines of a run."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)

    def where(self, **labels: object) -> Results:
        return Results(line for line in self.lines if all(line.get(key) == each for key, each in labels.items()))

    def each(self, label: str) -> list[Any]:
        """Return the distinct values of *label*, in order of appearance."""
        return list(dict.fromkeys(line[label] for line in self.lines if label in line))

    def values(self, name: str) -> list[float]:
        return [line[name] for line in self.lines if name in line]

    def median(self, name: str) -> float | None:
        values = self.values(name)
        return median(values) if values else None

    def text(self, name: str, style: str = "{:.3g}", unit: float = 1) -> str:
        """Median and range."""
        values = [value / unit for value in self.values(name)]
        if not values:
            return ""
        middle, low, high = (style.format(value) for value in (median(values), min(values), max(values)))
        return middle if low == high else f"{middle} ({low} to {high})"

    def sustained(self, **labels: object) -> float:
        """Return the highest rate that was sustained in most rounds; 0: none was."""
        found = self.where(table="requests", **labels)
        kept = [rate for rate in found.each("rate") if rate and found.where(rate=rate).mostly_sustained()]
        return max(kept, default=0)

    def mostly_sustained(self) -> bool:
        return sum(map(is_sustained, self.lines)) * 2 > len(self.lines)


def read(paths: Iterable[Path]) -> Results:
    return Results(json.loads(line) for path in paths for line in path.read_text().splitlines())


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)
