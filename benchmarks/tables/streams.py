"""The tables of event streams: the targets, and all that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from .results import Results, markdown_table
from .targets import HEAD, Target, rows

Row = Sequence[object]

#: Each of ours is followed by its peer.
NAMES = ("RedisLog", "XREAD", "MemoryLog", "Queue")
PEERS = {"RedisLog": "XREAD", "MemoryLog": "Queue"}
CPU, MEMORY = "cpu_us_per_event", "kb_per_listener"


def ratio(what: str, ours: str, figure: str) -> Callable[[Results], float | None]:
    """Return the median of the rounds' ratios of *ours* to its peer."""

    def measured(found: Results) -> float | None:
        ratios = _ratios(found.where(what=what), ours, figure)
        return median(ratios) if ratios else None

    return measured


def middle(what: str, name: str, figure: str) -> Callable[[Results], float | None]:
    return lambda found: found.where(what=what, competitor=name).median(figure)


def _of_cases(ours: str, goals: dict[str, tuple[float, float]]) -> list[Target]:
    title = f"CPU per event, {ours} / {PEERS[ours]}"
    return [Target(f"{title}, {what}", *goal, ratio(what, ours, CPU)) for what, goal in goals.items()]


TARGETS = [
    *_of_cases("RedisLog", {"10 x 10": (0.35, 0.2), "2 x 100": (0.2, 0.1), "25 x 20": (0.2, 0.1)}),
    *_of_cases("MemoryLog", {"10 x 10": (1.1, 0.8), "2 x 100": (0.8, 0.5), "25 x 20": (0.9, 0.6)}),
    Target("append to line, p50, RedisLog / XREAD, 25 x 20", 0.6, 0.3, ratio("25 x 20", "RedisLog", "p50_ms")),
    *(
        Target(f"memory of a listener, {ours} / {peer}, 25 x 20", 0.4, 0.25, ratio("25 x 20", ours, MEMORY))
        for ours, peer in PEERS.items()
    ),
    Target("connections to Redis per worker, 25 x 20", 3, 2, middle("25 x 20", "RedisLog", "connections")),
]

HIDDEN = {"table", "size", "round", "what", "competitor", "form"}


def section(found: Results) -> str:
    """Return the body of the section Event streams of RESULTS.md."""
    text = markdown_table(HEAD, rows(found, TARGETS))
    for what in found.each("what"):
        of = found.where(what=what)
        names = [name for name in NAMES if name in of.each("competitor")]
        pairs = [name for name in names if PEERS.get(name) in names]
        head = ["", *names, *(f"{ours} / {PEERS[ours]}" for ours in pairs)]
        text += f"\n### {what}\n\n" + markdown_table(head, figure_rows(of, names, pairs))
    return text


def figure_rows(found: Results, names: Sequence[str], pairs: Sequence[str]) -> Iterable[Row]:
    """Of one case: medians and ranges, and those of the rounds' ratios."""
    for figure in dict.fromkeys(figure for line in found.lines for figure in line if figure not in HIDDEN):
        cells = [found.where(competitor=name).text(figure, "{:,.3g}") for name in names]
        ratios = [Results({"ratio": each} for each in _ratios(found, ours, figure)) for ours in pairs]
        yield [figure.replace("_", " "), *cells, *(each.text("ratio", "{:.2f}") for each in ratios)]


def _ratios(found: Results, ours: str, figure: str) -> list[float]:
    """Of each round."""
    ratios = []
    for number in found.each("round"):
        both = [found.where(round=number, competitor=name).median(figure) for name in (ours, PEERS[ours])]
        if both[0] is not None and both[1]:
            ratios.append(both[0] / both[1])
    return ratios
