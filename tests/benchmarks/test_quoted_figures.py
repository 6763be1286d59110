"""The pages quote benchmarks/RESULTS.md: when it is measured again, they have to follow."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README, FIGURES, SIZING = "README.md", "docs/figures.md", "docs/sizing.md"
ONE_KEY = {
    README: "request awaited in a task",
    FIGURES: "| a request awaited in a task",
    SIZING: "awaited by a task, 1 key",
}
BYTES = {
    FIGURES: "bytes per pending operation",
    SIZING: "a pending operation, 1,",
}
MICRO = {README: "of one that nothing awaits", FIGURES: "if nothing awaits it"}
RATE = {FIGURES: "CPU s per million", SIZING: "from watch to end, at", "docs/purging.md": "| at once (default)"}
BLOCK = {FIGURES: "| `async with timeout(30)`"}
SERVERS = {"docs/servers.md": "waiter, p50"}
REQUEST, PARKED = "### A request comes and is answered", "### Requests are parked under keys"
FEW, MANY, BLOCKS = "### Few, 100,000\n", "### Many, 100,000\n", "### Cost"

#: A section of RESULTS.md, a row and a column of it; its unit and digits here; the lines that quote it.
QUOTED = [
    (REQUEST, "ours, awaited", 1, 1e-3, 1, ONE_KEY),
    (REQUEST, "futures", 1, 1e-3, 1, {page: ONE_KEY[page] for page in (README, FIGURES)}),
    (REQUEST, "ours, awaited", 3, 1e-3, 1, {FIGURES: ONE_KEY[FIGURES]}),
    (PARKED, "ours", 2, 1, 0, BYTES),
    (PARKED, "ours", 4, 1, 0, {page: BYTES[page] for page in (FIGURES, SIZING)}),
    (PARKED, "ours", 6, 1, 0, {SIZING: BYTES[SIZING]}),
    (PARKED, "ours, awaited", 2, 1e-3, 2, {SIZING: "the same, awaited by a task |"}),
    (PARKED, "futures", 2, 1, 0, {FIGURES: "| the same awaited in a task, 1 key"}),
    ("## Operations that nobody awaits", "watch + complete, 1 key", 1, 1e-3, 1, MICRO),
    ("## Operations that nobody awaits", "watch + complete, 3 keys", 1, 1e-3, 1, {FIGURES: MICRO[FIGURES]}),
    ("## Operations that nobody awaits", "call_later + cancel", 1, 1e-3, 1, MICRO),
    (FEW, "as it comes", 2, 1, 1, RATE | {"docs/observing.md": "without observers"}),
    (MANY, "as it comes", 2, 1, 1, RATE),
    (FEW, "metrics and journal", 2, 1, 1, {"docs/observing.md": "without observers"}),
    (BLOCKS, "asyncio | compiled", 2, 1e-3, 1, BLOCK),
    (BLOCKS, "uvloop | compiled", 2, 1e-3, 1, BLOCK),
    (BLOCKS, "asyncio | compiled", 3, 1e-3, 1, BLOCK),
    (BLOCKS, "uvloop | compiled", 3, 1e-3, 1, BLOCK),
    ("## Results of other servers' jobs", "arq: p50 ms", 1, 1, 0, SERVERS),
    ("## Results of other servers' jobs", "arq: p50 ms", 2, 1, 1, SERVERS),
    ("## Results of other servers' jobs", "taskiq: p50 ms", 1, 1, 0, SERVERS),
    ("## Results of other servers' jobs", "taskiq: p50 ms", 2, 1, 0, SERVERS),
]


def measured(section: str, row: str, column: int) -> float:
    """The median in a cell of RESULTS.md."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    (line,) = [line for line in text[text.index(section) :].splitlines() if line.startswith(f"| {row} |")][:1]
    return float(line.split("|")[column + 1].split()[0].replace(",", ""))


@pytest.mark.parametrize(("section", "row", "column", "unit", "digits", "lines"), QUOTED)
def test_page_quotes_measured_figure(
    section: str, row: str, column: int, unit: float, digits: int, lines: dict[str, str]
) -> None:
    figure = f"{measured(section, row, column) * unit:,.{digits}f}"
    for page, words in lines.items():
        text = (ROOT / page).read_text("utf-8")
        assert any(words in line and figure in line for line in text.splitlines()), (page, words, figure)
