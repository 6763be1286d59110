"""The tables of follow(), of a bus that keeps messages, and of waits for the results of jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from .results import Results, markdown_table
from .targets import HEAD, Target, rows

Row = Sequence[object]
Measured = Callable[[Results], float | None]


def ratios(found: Results, name: str, one: dict[str, object], other: dict[str, object]) -> Results:
    """Of each round: *name* of the line with the labels *one*, relative to that with the labels *other*."""
    lines = []
    for number in found.each("round"):
        above, below = (found.where(round=number, **labels).median(name) for labels in (one, other))
        if above is not None and below:
            lines.append({"ratio": above / below})
    return Results(lines)


def _median(of: Callable[[Results], Results]) -> Measured:
    def measured(found: Results) -> float | None:
        values = of(found).values("ratio")
        return median(values) if values else None

    return measured


def to_queue(found: Results, what: str, competitor: str = "follow") -> Results:
    return ratios(found.where(what=what), "cpu_us", {"competitor": competitor}, {"competitor": "queue"})


def to_plain(found: Results, batch: int, name: str) -> Results:
    return ratios(found.where(batch=batch), name, {"replay": True}, {"replay": False})


def to_theirs(found: Results, package: str, name: str) -> Results:
    return ratios(found.where(package=package), name, {"wait": "ours"}, {"wait": "theirs"})


FOLLOW = [
    Target(f"{what}: CPU per value, `follow()` / `asyncio.Queue`", 1.0, 0.7, _median(partial(to_queue, what=what)))
    for what in ("crowd", "single", "at hand")
]
REPLAY = [
    Target(
        "a publish, round trip, with replay / without",
        1.5,
        1.1,
        _median(partial(to_plain, batch=1, name="round_trip_us")),
    )
]
SERVERS = [
    Target(f"{package}: p50, ours / theirs", 0.05, 0.01, _median(partial(to_theirs, package=package, name="p50_ms")))
    for package in ("arq", "taskiq")
]


def follow(found: Results) -> str:
    """Return the body of the section of bench_follow.py."""
    lines = []
    for what in found.each("what"):
        for name in found.where(what=what).each("competitor"):
            of = found.where(what=what, competitor=name)
            relative = "" if name == "queue" else to_queue(found, what, name).text("ratio", "{:.2f}")
            lines.append([f"{what}: {name}", of.text("cpu_us", "{:.2f}"), relative])
    return markdown_table(HEAD, rows(found, FOLLOW)) + "\n" + markdown_table(["", "CPU us", "/ queue"], lines)


def replay(found: Results) -> str:
    """Return the body of the section of bench_replay.py."""
    lines = []
    for batch in found.each("batch"):
        for name, title in FIGURES.items():
            cells = [found.where(batch=batch, replay=each).text(name, "{:.1f}") for each in (False, True)]
            lines.append([f"{title}, {batch} per flush", *cells, to_plain(found, batch, name).text("ratio", "{:.2f}")])
    head = ["us for each key", "without", "with replay", "with / without"]
    return markdown_table(HEAD, rows(found, REPLAY)) + "\n" + markdown_table(head, lines)


FIGURES = {"round_trip_us": "round trip", "publisher_cpu_us": "CPU, publisher", "server_cpu_us": "CPU, server"}


def servers(found: Results) -> str:
    """Return the body of the section of bench_servers.py."""
    lines = []
    for package in found.each("package"):
        for name in ("p50_ms", "p99_ms", "client_cpu_s", "commands_per_wait"):
            cells = [found.where(package=package, wait=wait).text(name) for wait in ("theirs", "ours")]
            relative = to_theirs(found, package, name).text("ratio", "{:.3f}")
            lines.append([f"{package}: {name.replace('_', ' ')}", *cells, relative])
    figures = markdown_table(["", "theirs", "ours", "ours / theirs"], lines)
    return markdown_table(HEAD, rows(found, SERVERS)) + "\n" + figures
