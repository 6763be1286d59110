"""The tables of timeouts for blocks of code: the targets, and the measurements on each loop in each form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from .results import Results, markdown_table
from .targets import HEAD, Target, rows

Row = Sequence[object]


def ratio(what: str, loop: str) -> Callable[[Results], float | None]:
    """Return the median of the rounds' ratios of ours, compiled, to asyncio's."""

    def measured(found: Results) -> float | None:
        ratios = _ratios(found.where(what=what, loop=loop, form="compiled"), "asyncio")
        return median(ratios) if ratios else None

    return measured


TARGETS = [
    target
    for loop in ("asyncio", "uvloop")
    for target in (
        Target(f"{loop}: CPU, ours / `asyncio.timeout()`", 0.3, 0.15, ratio("cost", loop)),
        Target(f"{loop}: memory while the block waits, ours / `asyncio.timeout()`", 0.5, 0.3, ratio("traced", loop)),
    )
]

TITLES = {
    "cost": "Enter and leave, CPU ns",
    "traced": "Bytes while the block waits, by tracemalloc",
    "rss": "Bytes while the block waits, of the process",
}


def section(found: Results) -> str:
    """Return the body of the section Timeouts of RESULTS.md."""
    text = markdown_table(HEAD, rows(found, TARGETS))
    for what, title in TITLES.items():
        of = found.where(what=what)
        if of.lines:
            text += f"\n### {title}\n\n" + markdown_table(["", *_columns(of)], figure_rows(of))
    return text


def _columns(found: Results) -> list[str]:
    return [f"{loop}, {form}" for loop in found.each("loop") for form in found.each("form")]


def figure_rows(found: Results) -> Iterable[Row]:
    """Of one measurement: medians and ranges, and those of the rounds' ratios."""
    cells = [found.where(loop=loop, form=form) for loop in found.each("loop") for form in found.each("form")]
    names = sorted(found.each("competitor"), key=ORDER.index)
    for name in names:
        yield [name, *(of.where(competitor=name).text("value", "{:,.0f}") for of in cells)]
    for name in names[1:]:
        ratios = [Results({"ratio": each} for each in _ratios(of, name)) for of in cells]
        yield [f"ours / {name}", *(each.text("ratio", "{:.2f}") for each in ratios)]


ORDER = ["ours", "asyncio", "async-timeout", "anyio"]


def _ratios(found: Results, peer: str) -> list[float]:
    """Of each round."""
    ratios = []
    for number in found.each("round"):
        ours, its = (found.where(round=number, competitor=name).median("value") for name in ("ours", peer))
        if ours is not None and its:
            ratios.append(ours / its)
    return ratios
