"""The tables of the key bus: its targets, and how many workers and machines a fleet takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .results import Results
from .targets import Target

Row = Sequence[object]


def median_of(what: str, figure: str, engine: str) -> Callable[[Results], float | None]:
    def measured(found: Results) -> float | None:
        return found.where(table="buses", what=what, engine=engine).median(figure)

    return measured


def highest_of(what: str, figure: str, engine: str) -> Callable[[Results], float | None]:
    """Of all rounds."""

    def measured(found: Results) -> float | None:
        values = found.where(table="buses", what=what, engine=engine).values(figure)
        return max(values) if values else None

    return measured


def _targets_of(engine: str) -> list[Target]:
    return [
        Target(f"{engine}: never woken in any fault run", 0, 0, highest_of("fault", "never_woken", engine)),
        Target(f"{engine}: publish to wake over the bus / local, p50", 16, 10, median_of("wake", "ratio", engine)),
        Target(f"{engine}: the bus's own share of that, us", 190, 50, median_of("wake", "own_share_us", engine)),
        Target(f"{engine}: CPU us per key, receiver", 2.5, 0.5, median_of("flood", "cpu_us_per_key", engine)),
        Target(f"{engine}: sustained keys/s", 90_000, 200_000, median_of("flood", "keys_per_second", engine), True),
        Target(f"{engine}: gap noticed, slowest, s", 2.5, 2, highest_of("gap", "slowest_s", engine)),
    ]


TARGETS = [
    *_targets_of("postgres"),
    *_targets_of("redis"),
    Target("longest turn after a gap, 100,000 waiters, ms", 10, 6, median_of("turn", "longest_turn_ms", "")),
    Target("the same, awaited by 100,000 tasks", 10, 6, median_of("turn, awaited", "longest_turn_ms", "")),
    Target("reads for 10,000 polls of one topic", 2, 1, median_of("reads", "reads", "")),
]

HEAD = ["what", "engine", "figure", "median (range)"]
HIDDEN = {"table", "size", "round", "what", "engine", "form", "versions"}


def detail_rows(found: Results) -> Iterable[Row]:
    """All that was measured, as medians and ranges."""
    for what in found.each("what"):
        for engine in found.where(what=what).each("engine"):
            of = found.where(what=what, engine=engine)
            for name in dict.fromkeys(name for line in of.lines for name in line if name not in HIDDEN):
                yield [what, engine, name.replace("_", " "), of.text(name, "{:,.4g}")]
