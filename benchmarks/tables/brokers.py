"""The tables of the broker: its targets, and the measurements of each form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from .results import Results, markdown_table
from .targets import HEAD, Target, rows

Row = Sequence[object]

OURS, PEER = NAMES = ("ours", "event")
COST = "broker_cpu_us_per_answer"


def ratio_of(what: str, figure: str) -> Callable[[Results], float | None]:
    """Return the median of the rounds' ratios. Within a round, both brokers meet the same disturbances."""

    def measured(found: Results) -> float | None:
        ratios = _ratios(found.where(table="brokers", what=what), figure)
        return median(ratios) if ratios else None

    return measured


def idle_percent(found: Results) -> float | None:
    return found.where(table="brokers", what="grouped", broker=OURS).median("broker_cpu_percent")


TARGETS = [
    Target("1,000 parked, 100 produced/s: broker's CPU per answer, ours / Event", 0.85, 0.7, ratio_of("parked", COST)),
    Target("24 idle consumers: percent of a core", 2.3, 1.0, idle_percent),
]

TITLES = {
    "clients": "Real clients (confluent-kafka)",
    "parked": "1,000 consumers wait for 1 byte, 100 produce requests/s",
    "many": "The same, and they wait for 4,096 bytes",
    "idle": "Nothing comes: each fetch expires after 500 ms",
    "grouped": "Nothing comes to 24 consumers in 4 groups, with heartbeats every 3 s",
}
HIDDEN = {"table", "size", "round", "what", "broker", "form", "loop", "versions"}


def section(found: Results) -> str:
    """Return the body of the section Broker of RESULTS.md."""
    text = markdown_table(HEAD, rows(found, TARGETS))
    for what, title in TITLES.items():
        of = found.where(what=what)
        if of.lines:
            text += f"\n### {title}\n\n" + markdown_table(["", *NAMES, "ours / event"], figure_rows(of))
    return text


def figure_rows(found: Results) -> Iterable[Row]:
    """Of one measurement: medians and ranges, and those of the rounds' ratios."""
    for name in dict.fromkeys(name for line in found.lines for name in line if name not in HIDDEN):
        ratios = Results({"ratio": each} for each in _ratios(found, name))
        cells = [found.where(broker=broker).text(name, "{:,.4g}") for broker in NAMES]
        yield [name.replace("_", " "), *cells, ratios.text("ratio", "{:.3f}")]


def _ratios(found: Results, figure: str) -> list[float]:
    """Of each round."""
    ratios = []
    for number in found.each("round"):
        both = [found.where(round=number, broker=broker).median(figure) for broker in NAMES]
        if both[0] is not None and both[1]:
            ratios.append(both[0] / both[1])
    return ratios
