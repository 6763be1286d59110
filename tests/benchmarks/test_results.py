"""RESULTS.md: sections that were measured again replace those of the same title, and no others."""

from __future__ import annotations

from tables import writer
from tables.results import Results

OLD = """\
# Results

A machine.

## Timers alone

kept

### ns

| 1 |

## Buses

old

## Operations

kept, too
"""
FOUND = Results(
    [
        {"table": "machine", "processor": "P", "cores": 2, "system": "S", "date": "D", "versions": {"redis": "8"}},
        {"table": "buses", "what": "gap", "engine": "redis", "slowest_s": 1.9, "form": "compiled"},
        {"table": "buses", "what": "gap", "engine": "redis", "slowest_s": 1.7, "form": "compiled"},
    ]
)


def test_replace_sections_known_title_replaces_its_section_alone() -> None:
    text = writer.replace_sections(OLD, FOUND)
    assert "old" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Timers alone",
        "## Buses",
        "## Operations",
    ]
    assert "\n\n## Timers alone\n\nkept\n\n### ns\n\n| 1 |\n\n## Buses\n\n`python benchmarks/bench_bus.py" in text
    assert "| redis: gap noticed, slowest, s | 2.5 | 2 | 1.9 | aim |" in text
    assert "P, 2 cores, S; redis 8; D." in text


def test_replace_sections_new_title_goes_to_the_end() -> None:
    text = writer.replace_sections("# Results\n\n## Operations\n\nkept\n", FOUND)
    assert text.startswith("# Results\n\n## Operations\n\nkept\n\n## Buses\n\n")


def test_replace_sections_twice_changes_nothing_more() -> None:
    once = writer.replace_sections(OLD, FOUND)
    assert writer.replace_sections(once, FOUND) == once


def test_keep_sections_keeps_only_sections_with_a_command() -> None:
    text = writer.keep_sections("# Results\n\n## Timers alone\n\nnew\n", OLD)
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Timers alone", "## Buses"]
    assert "new" in text
    assert "old" in text
