"""python benchmarks/run.py --compiled build/compiled: every figure, against what it must reach.

Prints a table, and writes figures.json (JSON lines) and figures.png to build/benchmarks; a full run also writes
FIGURES.md beside this file. Each measurement is a process of its own, and they take turns, round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import figure as drawing
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import track

ROUNDS = 5
HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"

Report = dict[str, Any]  # a line of JSON
Run = tuple[str, Path, str]  # an interpreter, where it finds the library, and arguments of measurements.py


@dataclass(frozen=True)
class Figure:
    """Two of the values that a run of measurements.py prints, divided; {} in its arguments is the one asked for."""

    table: str
    what: str
    arguments: str
    of: str
    per: str | None
    marks: dict[str, tuple[float, float]]  # by Python version: must reach, aim
    compiled: bool = True


PARKED = {"3.11": (0.7, 0.45), "3.13": (0.95, 0.75)}
ALONE = {"3.11": (0.85, 0.7), "3.13": (1.0, 0.8)}
ASYNCIO, UVLOOP = "requests --competitor {}", "requests --competitor {} --loop uvloop"
OTHERS = " --others 100000"
LASTING = OTHERS + " --requests 100000 --answer oldest"
FIGURES = [
    Figure("timer", "asyncio", "timer", "ours", "call_later", {"3.11": (0.05, 0.025)}),
    Figure("timer", "uvloop", "timer --loop uvloop", "ours", "call_later", {"3.11": (0.05, 0.025)}),
    Figure("timer", "asyncio", "timer", "ours", "call_later", {"3.11": (0.25, 0.15)}, compiled=False),
    Figure("scale", "1M / 1k", "scale", "1M", "1k", {"3.11": (1.3, 1.1)}),
    Figure("requests", "100k others, asyncio", ASYNCIO + OTHERS, "ours", "peer", PARKED),
    Figure("requests", "100k others, uvloop", UVLOOP + OTHERS, "ours", "peer", PARKED),
    Figure("requests", "nobody else, asyncio", ASYNCIO, "ours", "peer", ALONE),
    Figure("requests", "nobody else, uvloop", UVLOOP, "ours", "peer", ALONE),
    Figure("operations", "watch + check, 1 key", "operations", "1 key", "call_later", {"3.11": (1.1, 0.45)}),
    Figure("operations", "watch + check, 3 keys", "operations", "3 keys", "call_later", {"3.11": (1.4, 0.65)}),
    Figure("operations", "check, nobody waits", "operations", "check", "call_later", {"3.11": (0.055, 0.03)}),
    Figure("memory", "1 key", "memory", "1 key", None, {"3.11": (250, 180)}),
    Figure("memory", "3 keys", "memory", "3 keys", None, {"3.11": (400, 280)}),
    Figure("memory", "1 key, one slot more", "memory", "1 key, one slot more", None, {"3.11": (250, 180)}),
    Figure("memory", "3 keys, one slot more", "memory", "3 keys, one slot more", None, {"3.11": (400, 280)}),
    *(
        Figure("collector", f"{told}, {name}", f"{loop}{LASTING} --collector {told}", "ours", "peer", {})
        for name, loop in (("asyncio", ASYNCIO), ("uvloop", UVLOOP))
        for told in ("default", "threshold", "freeze")
    ),
]
TABLES = {
    "timer": "Timer add + cancel / the loop's `call_later()` + `cancel()`, each with 100k others pending",
    "scale": "Timer add + cancel with 1M others pending / with 1k others pending",
    "requests": "50k requests parked and answered one by one, each awaited in its task, 1 key each / the same with a "
    "Future per request in a dict of sets and `asyncio.timeout()`; alone, and with 100k others parked and awaited",
    "operations": "Operations that nobody awaits, 100k others pending / asyncio's `call_later()` + `cancel()` in the "
    "same process, with no other timers in the loop",
    "memory": "Bytes per pending operation that nobody awaits, without its keys: a subclass with `__slots__ = ()`, or "
    "with one slot of its own",
    "collector": "100k requests with 100k others parked, and as each comes the oldest is answered, so that each is "
    "parked for long: garbage collector at its defaults, with `gc.set_threshold(50_000, 20, 100)`, and with "
    "`gc.freeze()` once the first 100k are parked",
}
COLUMNS = ["what", "Python", "must reach", "aim", "measured (range)", "CPU of both"]
NOTES = """\
CPU time; median (and range) of {rounds} rounds. In a round every measurement runs once, in a process of its own, after
a warm-up; a ratio comes from one round. What costs little (timer, scale, operations) alternates with its competitor
within one process, in blocks of 1,000. `call_later()` pays for the turn of the loop in which it drops what was
cancelled. The timer's items exist beforehand: in a purgatory they are the operations, and those are made within the
measurement, by ordinary, interpreted subclasses of `DelayedOperation`. The requests start after a full garbage
collection; with 50k of them the next one rarely comes, and what it costs in the long run is in the last table.
"""


def measure(run: Run, quick: bool) -> Report:
    python, path, arguments = run
    command = [python, str(HERE / "measurements.py"), *arguments.split(), "--scale", "100" if quick else "1"]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(path)}, capture_output=True, text=True)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{child.stderr}")
    report: Report = json.loads(child.stdout)
    if report["form"] != ("interpreted" if path == SOURCES else "compiled"):
        sys.exit(f"{python} found the {report['form']} form in {path}")
    return report


def point(figure: Figure, of: list[Report], per: list[Report]) -> Report:
    """One figure as measured with one interpreter, from what each round printed."""
    ours = [report["values"][figure.of] for report in of]
    theirs = [report["values"][figure.per] for report in per]
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)] if per else ours
    completed = [report["values"].get("completed") for report in (of[-1], (per or of)[-1])]
    if completed[0] != completed[1]:
        sys.exit(f"{figure.what}: the competitors did not complete the same number: {completed}")
    form, version = of[0]["form"], of[0]["versions"]["Python"].rpartition(".")[0]
    comparable = form == ("compiled" if figure.compiled else "interpreted")
    must_reach, aim = figure.marks.get(version, (None, None)) if comparable else (None, None)
    where = {"machine": machine(), "cores": os.cpu_count(), "date": date.today().isoformat()}
    result = {"measured": median(rounds), "low": min(rounds), "high": max(rounds), "rounds": len(rounds)}
    sides = {"of": median(ours), "per": median(theirs) if per else None, "completed": completed}
    name = {"table": figure.table, "figure": figure.what, "must_reach": must_reach, "aim": aim}
    return {**name, **result, **sides, **where, **{key: of[0][key] for key in ("form", "loop", "versions")}}


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def row(point: Report) -> list[str]:
    style = "{:.3f}" if point["per"] else "{:.0f}"
    measured, low, high = (style.format(point[key]) for key in ("measured", "low", "high"))
    marks = ["" if point[key] is None else f"{point[key]:g}" for key in ("must_reach", "aim")]
    cpu = f"{point['of'] / 1000:.3g} / {point['per'] / 1000:.3g} µs" if point["per"] else ""
    python = f"{point['versions']['Python']} {point['form']}"
    return [point["figure"], python, *marks, f"{measured} ({low} to {high})", cpu]


def markdown(points: list[Report]) -> str:
    first = points[0]
    versions = sorted({f"{name} {version}" for point in points for name, version in point["versions"].items()})
    text = f"# Figures\n\n{first['machine']}, {first['cores']} cores, {platform.platform()}; {', '.join(versions)}; "
    text += f"{first['date']}. Written by `make bench`.\n\n{NOTES.format(rounds=first['rounds'])}"
    for name in dict.fromkeys(point["table"] for point in points):
        text += (
            f"\n## {name}\n\n{TABLES[name]}:\n`python benchmarks/run.py --compiled build/compiled --only {name}`\n\n"
        )
        lines = [COLUMNS, ["---"] * len(COLUMNS), *(row(point) for point in points if point["table"] == name)]
        text += "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return text


def draw(points: list[Report], path: Path) -> None:
    """Bars as shares of what must be reached: ratios of 0.03 and of 1.3 on one axis."""
    marked = [point for point in reversed(points) if point["must_reach"]]
    page = drawing.Figure(figsize=(11, 1.5 + 0.4 * len(marked)), layout="constrained")
    axes = page.subplots()
    for y, point in enumerate(marked):
        measured, low, high, aim = (point[key] / point["must_reach"] for key in ("measured", "low", "high", "aim"))
        axes.barh(y, measured, xerr=[[measured - low], [high - measured]], color="tab:blue", alpha=0.5)
        axes.plot(aim, y, "g|", markersize=20, label=None if y else "aim")
        axes.annotate(f" {row(point)[4]}", (0, y), va="center")
    axes.axvline(1, color="tab:red", label="must reach")
    axes.set_yticks(range(len(marked)), [f"{point['table']}: {', '.join(row(point)[:2])}" for point in marked])
    axes.set_xlabel("measured / must reach; less is better")
    page.legend(loc="outside upper right")
    page.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", type=Path, default=SOURCES, metavar="DIR", help="the compiled library")
    parser.add_argument("--python", action="append", default=[], metavar="PATH[:DIR]", help="one more interpreter")
    parser.add_argument("--only", choices=TABLES, help="only this table")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does everything run?")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build/benchmarks", metavar="DIR")
    args = parser.parse_args()

    interpreters = [(sys.executable, args.compiled)]
    interpreters += [(python, Path(path or SOURCES)) for python, _, path in (p.partition(":") for p in args.python)]
    wanted: list[tuple[Figure, Run, Run | None]] = []
    for figure in FIGURES:
        for python, path in interpreters if args.only in (None, figure.table) else ():
            finds = path if figure.compiled else SOURCES
            of = (python, finds, figure.arguments.format(figure.of))
            wanted.append((figure, of, (python, finds, figure.arguments.format(figure.per)) if figure.per else None))
    reports: dict[Run, list[Report]] = {run: [] for _, *runs in wanted for run in runs if run}
    console = Console()
    try:
        for run in track(list(reports) * (1 if args.quick else ROUNDS), "Measuring", console=console):
            reports[run].append(measure(run, args.quick))
    except KeyboardInterrupt:
        sys.exit("Stopped; nothing was written.")
    points = [point(figure, reports[of], reports[per] if per else []) for figure, of, per in wanted]

    text = markdown(points)
    console.print(Markdown(text))
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "figures.json").write_text("".join(json.dumps(point) + "\n" for point in points))
    draw(points, args.output / "figures.png")
    if not (args.quick or args.only):
        (HERE / "FIGURES.md").write_text(text)


if __name__ == "__main__":
    main()
