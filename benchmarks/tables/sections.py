"""Write the tables of RESULTS.md, each between its two marks. The text around them is the page's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from . import fleets, pipelines, targets
from .results import Results, cell, markdown_table, pivot

REQUESTS: Final = (
    *("achieved_per_second", "cpu_seconds_per_million", "gc_seconds_per_million", "late_p50_ms", "late_p99_ms"),
    *("late_max_ms", "longest_turn_ms", "peak_pending", "peak_mb"),
)
OURS: Final = ("ours", "theirs")


@dataclass(frozen=True)
class Section:
    """Says which labels make a row, a column, and a table of their own; and which columns are compared."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] = ("figure",)
    each: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    peers: tuple[tuple[str, str], ...] = ()

    def __call__(self, found: Results) -> str:
        text = ""
        labels = [name for name in (*self.rows, *self.columns) if name != "figure"]
        for group in found.groups(self.each):
            of = found.where(**group).figures([*labels, *self.each], self.figures)
            title = ", ".join(map(cell, group.values())).replace("_", " ")
            text += f"\n### {title[:1].upper()}{title[1:]}\n\n" if title else "\n"
            text += pivot(of, self.rows, self.columns, self.peers)
        return text


SECTIONS: dict[str, Callable[[Results], str]] = {
    "requests": Section(("competitor", "rate"), each=("workload",), figures=REQUESTS),
    "ablations": Section(("setting",), each=("workload", "rate"), figures=REQUESTS),
    "timers": Section(("design", "form"), ("pending",), ("operation",), ("ns",)),
    "operations": Section(("competitor",), ("series",), ("title",), ("value",)),
    "micro": Section(("operation",), ("form",), figures=("ns",)),
    "buses": Section(("what", "engine", "figure"), ()),
    "fleets": fleets.markdown,
    "pipelines": pipelines.markdown,
    "brokers": Section(("figure",), ("broker",), ("what",), peers=(("ours", "event"),)),
    "streams": Section(("figure",), ("competitor",), ("what",), peers=targets.STREAMS),
    "timeouts": Section(
        *(("loop", "form"), ("competitor",), ("what",), ("value",)),
        tuple(("ours", peer) for peer in ("asyncio", "anyio")),
    ),
    "follow": Section(
        *(("what",), ("competitor",), (), ("cpu_us",)),
        tuple((each, "queue") for each in ("follow", "follow, idle", "wait_for")),
    ),
    "replay": Section(("batch", "figure"), ("replay",), peers=(("with", "without"),)),
    "servers": Section(("package", "figure"), ("wait",), peers=(OURS,)),
}
OF_SECTION: Final = targets.OF_SECTION | {"pipelines": pipelines.TARGETS}


def section(name: str, found: Results) -> str:
    """Return the targets of a section that were measured, and its tables."""
    of = found.where(table=name)
    reached = targets.rows(of, OF_SECTION.get(name, ()))
    return (markdown_table(targets.HEAD, reached) if reached else "") + SECTIONS[name](of)


def measured_on(found: Results) -> str:
    machine = found.where(table="machine").lines[0]
    versions = {f"{name} {each}" for line in found.lines for name, each in line.get("versions", {}).items()}
    text = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; "
    return f"{text}{', '.join(sorted(versions))}; {machine['date']}."


def measured(page: str, found: Results) -> str:
    """Return *page*, a RESULTS.md, with the tables of *found* in place of older ones. No other text changes."""
    texts = {name: section(name, found) for name in SECTIONS if found.where(table=name).lines}
    if reached := targets.rows(found):
        texts |= {"targets": markdown_table(targets.HEAD, reached), "losses": targets.losses(found)}
    for name, text in texts.items():
        block = rf"(?s)(?<=<!-- {name} -->\n).*?(?=<!-- end -->)"
        new = f"\n{measured_on(found)}\n\n{text.lstrip()}\n"
        page, count = re.subn(block, lambda _, new=new: new, page)  # type: ignore[misc]
        if count != 1:
            raise LookupError(f"RESULTS.md must have the marks <!-- {name} --> and <!-- end --> once")
    return page
