"""RESULTS.md: what was measured again replaces the tables between its marks, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import sections
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
    assert sections.measured(text, FOUND) == text


def test_measured_page_without_the_marks_is_refused() -> None:
    with pytest.raises(LookupError, match="<!-- buses --> and <!-- end --> once"):
        sections.measured(OLD.replace("buses -->", "-->"), FOUND)


def test_page_has_the_marks_of_every_section() -> None:
    marks = re.findall(r"<!-- (\w+) -->", (ROOT / "benchmarks/RESULTS.md").read_text())
    assert sorted(marks[::2]) == sorted([*sections.SECTIONS, "targets", "losses"])
    assert set(marks[1::2]) == {"end"}
