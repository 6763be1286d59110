"""Read the lines that a run measured, select them by label, and make tables of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Line = dict[str, Any]

#: Names in a line that are no figures.
HIDDEN = {"table", "size", "round", "form", "loop", "versions", "title", "cores"}


def is_sustained(line: Line) -> bool:
    """Did it sustain the target rate, with 99 % of time-outs at most 20 ms late?"""
    return bool(line["achieved_per_second"] >= 0.98 * line["rate"] and line["late_p99_ms"] <= 20)


def number(value: float) -> str:
    """Three digits, or all of an integer part that is longer."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Results:
    """The lines of a run."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)

    def where(self, **labels: object) -> Results:
        return Results(line for line in self.lines if all(line.get(key) == each for key, each in labels.items()))

    def each(self, label: str) -> list[Any]:
        """Return the distinct values of *label*, in order of appearance."""
        return list(dict.fromkeys(line[label] for line in self.lines if label in line))

    def groups(self, labels: Sequence[str]) -> list[Line]:
        """Return the distinct combinations of *labels*, in order of appearance. A missing one is empty text."""
        found = dict.fromkeys(tuple(line.get(label, "") for label in labels) for line in self.lines)
        return [dict(zip(labels, values, strict=True)) for values in found]

    def figures(self, labels: Iterable[str], chosen: Sequence[str] = ()) -> Results:
        """Return a line for each figure: its *labels*, ``figure``, ``value``. Args: chosen: only these figures."""
        return Results(
            {label: line.get(label, "") for label in (*labels, "round")}
            | {"figure": name.replace("_", " "), "value": value}
            for line in self.lines
            for name, value in line.items()
            if (name in chosen if chosen else name not in HIDDEN and name not in labels)
        )

    def values(self, name: str) -> list[float]:
        return [line[name] for line in self.lines if name in line]

    def median(self, name: str) -> float | None:
        values = self.values(name)
        return median(values) if values else None

    def text(self, name: str, style: str | None = None, unit: float = 1) -> str:
        """Median and range. What is no number is the same in each round."""
        values: list[Any] = self.values(name)
        if not values:
            return ""
        if isinstance(values[0], dict):
            return ", ".join(f"{key}: {value}" for key, value in values[0].items())
        if not isinstance(values[0], (int, float)):
            return str(values[0])
        show = number if style is None else style.format
        middle, low, high = (show(each(values) / unit) for each in (median, min, max))
        return middle if low == high else f"{middle} ({low} to {high})"

    def ratios(self, name: str, one: Mapping[str, object], other: Mapping[str, object]) -> list[float]:
        """Of each round: *name* of the line with the labels *one*, relative to that with the labels *other*."""
        both = [
            [self.where(round=each, **labels).median(name) for labels in (one, other)] for each in self.each("round")
        ]
        return [above / below for above, below in both if above is not None and below]

    def mostly_sustained(self) -> bool:
        return sum(map(is_sustained, self.lines)) * 2 > len(self.lines)


def read(paths: Iterable[Path]) -> Results:
    return Results(json.loads(line) for path in paths for line in path.read_text().splitlines())


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def pivot(found: Results, rows: Sequence[str], columns: Sequence[str], peers: Iterable[tuple[str, str]]) -> str:
    """Return a table of the ``value`` of *found*: medians and ranges.

    Args: rows, columns: labels that make a row and a column. peers: pairs of columns
        that are compared, in columns of their own: the ratios within the rounds.
    """
    across = {_name(group): group for group in found.groups(columns)}
    pairs = [pair for pair in peers if across.keys() >= set(pair)]
    head = [*[""] * len(rows), *across, *(f"{one} / {peer}" for one, peer in pairs)]
    lines = []
    for group in found.groups(rows):
        of = found.where(**group)
        ratios = [of.ratios("value", across[one], across[peer]) for one, peer in pairs]
        cells = [of.where(**labels).text("value") for labels in across.values()]
        cells += [Results({"ratio": each} for each in them).text("ratio", "{:.2f}") for them in ratios]
        lines.append([*map(cell, group.values()), *cells])
    return markdown_table(head, lines)


def _name(group: Line) -> str:
    return ", ".join(filter(None, map(cell, group.values()))) or "median (range)"


def cell(label: object) -> str:
    if label is None:
        return "unthrottled"
    return f"{label:,}" if type(label) is int else str(label)
