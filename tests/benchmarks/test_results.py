"""RESULTS.md: what was measured again replaces the tables between its marks, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import sections, targets
from tables.results import Results

ROOT = Path(__file__).parents[2]
OLD = """\
# Results

## Timers alone

<!-- timers -->

kept

<!-- end -->

## Buses

How they are measured.

<!-- buses -->

old

<!-- end -->
"""
FOUND = Results(
    [
        {"table": "machine", "processor": "P", "cores": 2, "system": "S", "date": "D", "versions": {"redis": "8"}},
        {"table": "buses", "what": "gap", "engine": "redis", "slowest_s": 1.9, "form": "compiled"},
        {"table": "buses", "what": "gap", "engine": "redis", "slowest_s": 1.7, "form": "compiled"},
    ]
)


def test_measured_replaces_the_tables_of_its_section_alone() -> None:
    text = sections.measured(OLD, FOUND)
    before, after = OLD.split("\nold\n")
    assert text.startswith(before)
    assert text.endswith(after)
    new = text.removeprefix(before).removesuffix(after)
    assert "P, 2 cores, S; redis 8; D." in new
    assert "| redis: gap noticed, slowest, s | 2.5 | 2 | 1.9 | aim |" in new
    assert "| gap | redis | slowest s | 1.8 (1.7 to 1.9) |" in new


def test_measured_twice_changes_nothing_more() -> None:
    once = sections.measured(OLD, FOUND)
    assert sections.measured(once, FOUND) == once


def test_measured_page_without_the_marks_is_refused() -> None:
    with pytest.raises(LookupError, match="<!-- buses --> and <!-- end --> once"):
        sections.measured(OLD.replace("buses -->", "-->"), FOUND)


def test_page_has_the_marks_of_every_section() -> None:
    marks = re.findall(r"<!-- (\w+) -->", (ROOT / "benchmarks/RESULTS.md").read_text())
    assert sorted(marks[::2]) == sorted([*sections.SECTIONS, "targets", "losses"])
    assert set(marks[1::2]) == {"end"}


def test_section_compares_columns_within_the_rounds() -> None:
    waits = [("theirs", 4.0), ("ours", 1.0)], [("ours", 6.0), ("theirs", 6.0)], [("theirs", 4.0), ("ours", 2.0)]
    found = Results(
        {"table": "servers", "package": "arq", "round": number, "wait": wait, "p50_ms": value}
        for number, each in enumerate(waits)
        for wait, value in each
    )
    text = sections.section("servers", found)
    assert "| arq: p50, ours / theirs | 0.05 | 0.01 | 0.5 | missed |" in text
    assert "|  |  | theirs | ours | ours / theirs |" in text
    assert "| arq | p50 ms | 4 (4 to 6) | 2 (1 to 6) | 0.50 (0.25 to 1.00) |" in text


def test_losses_compare_tasks_with_tasks_and_need_a_clear_difference() -> None:
    values = {"ours": 100, "ours, awaited": 300, "old": 95, "futures": 250}
    found = Results(
        {"table": "operations", "what": "watch", "series": "1 key", "competitor": name, "value": value}
        for name, value in values.items()
    )
    assert targets.losses(found) == "- operations, watch, 1 key: futures, 250 against 300\n"
    found.lines[2]["value"] = 80
    assert "- operations, watch, 1 key: old, 80 against 100\n" in targets.losses(found)


def test_section_ratio_is_the_median_of_the_rounds_ratios() -> None:
    values = {"ours": [10.0, 30.0, 20.0], "asyncio": [100.0, 100.0, 400.0]}
    labels = {"table": "timeouts", "what": "cost", "loop": "asyncio", "form": "compiled"}
    found = Results(
        {**labels, "competitor": name, "round": number, "value": value}
        for name, each in values.items()
        for number, value in enumerate(each)
    )
    text = sections.section("timeouts", found)
    assert "| asyncio: CPU, ours / `asyncio.timeout()` | 0.3 | 0.15 | 0.1 | aim |" in text
    assert "| asyncio | compiled | 20 (10 to 30) | 100 (100 to 400) | 0.10 (0.05 to 0.30) |" in text
