"""Write RESULTS.md and the plots from the lines of a run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from . import brokers, buses, fleets, losses, pipelines, plots, streams, targets, texts, timeouts, waits
from .results import Results, read
from .results import markdown_table as table

Row = Sequence[object]

COMMAND = "python benchmarks/run.py --compiled build/compiled --peers build/peers --only {}{}"
#: These may be run by themselves, and then say where.
OWN_COMMANDS = {
    "buses": "python benchmarks/bench_bus.py --compiled build/compiled --json build/bus.json",
    "fleets": "python benchmarks/fleet.py --compiled build/compiled --json build/fleet.json",
    "pipelines": "python benchmarks/bench_pipeline.py --compiled build/compiled --json build/pipeline.json",
    "brokers": "python benchmarks/bench_broker.py --compiled build/compiled --json build/broker.json",
    "streams": "python benchmarks/bench_streams.py --compiled build/compiled --json build/streams.json",
    "timeouts": "python benchmarks/bench_timeouts.py --compiled build/compiled --json build/timeouts.json",
    "follow": "python benchmarks/bench_follow.py --compiled build/compiled --json build/follow.json",
    "replay": "python benchmarks/bench_replay.py --json build/replay.json",
    "servers": "python benchmarks/bench_servers.py --json build/servers.json",
}


def thousands(rate: float | None) -> str:
    return "unthrottled" if rate is None else f"{rate:,.0f}"


def title_of(workload: str) -> str:
    return workload.capitalize() if "," in workload else f"{workload.capitalize()} time-outs"


def requests(found: Results) -> str:
    """The three figures of the seed's benchmark."""
    text = ""
    for workload in found.each("workload"):
        name = plots.file_name(workload)
        text += f"\n### {title_of(workload)}\n\n![{workload}]({name})\n\n"
        head = [
            "",
            "target /s",
            "achieved /s",
            "CPU s per 1M",
            "gc s per 1M",
            "late p50 / p99 / max ms",
            "longest turn ms",
        ]
        text += table([*head, "peak pending", "peak MB"], request_rows(found.where(workload=workload)))
    return text


def request_rows(found: Results) -> Iterable[Row]:
    for competitor in found.each("competitor"):
        of = found.where(competitor=competitor)
        for rate in of.each("rate"):
            point = of.where(rate=rate)
            late = " / ".join(f"{point.median(f'late_{name}_ms') or 0:.1f}" for name in ("p50", "p99", "max"))
            measured = [point.text("achieved_per_second", "{:,.0f}"), point.text("cpu_seconds_per_million", "{:.2f}")]
            rest = [point.text("gc_seconds_per_million", "{:.2f}"), late, point.text("longest_turn_ms", "{:.1f}")]
            yield [
                competitor,
                thousands(rate),
                *measured,
                *rest,
                point.text("peak_pending", "{:,.0f}"),
                point.text("peak_mb", "{:.0f}"),
            ]


def survivors(found: Results) -> str:
    limits = found.each("limit_mb")

    def fate(of: Results) -> str:
        died = sum("died" in line for line in of.lines)
        if died:
            return f"died ({died} of {len(of.lines)})"
        return f"lives, {of.text('peak_mb', '{:.0f}')} MB, {of.text('achieved_per_second', '{:,.0f}')}/s"

    rows = [
        [name, *(fate(found.where(competitor=name, limit_mb=limit)) for limit in limits)]
        for name in found.each("competitor")
    ]
    return table(["", *(f"{limit} MB" for limit in limits)], rows)


def ablations(found: Results) -> str:
    def row(of: Results, setting: str) -> Row:
        late = f"{of.median('late_p50_ms') or 0:.1f} / {of.median('late_p99_ms') or 0:.1f}"
        cpu, collector = of.text("cpu_seconds_per_million", "{:.2f}"), of.text("gc_seconds_per_million", "{:.2f}")
        return [setting, cpu, collector, late, of.text("longest_turn_ms", "{:.1f}"), of.text("peak_mb", "{:.0f}")]

    text = ""
    for workload in found.each("workload"):
        of = found.where(workload=workload)
        text += f"\n### {title_of(workload)}, {of.lines[0]['rate']:,}/s\n\n"
        head = ["", "CPU s per 1M", "gc s per 1M", "late p50 / p99 ms", "longest turn ms", "peak MB"]
        text += table(head, [row(of.where(setting=setting), setting) for setting in of.each("setting")])
    return text


def timers(found: Results) -> str:
    text = "\n![timers](timers.png)\n"
    for operation in found.each("operation"):
        of = found.where(operation=operation)
        sizes = sorted(of.each("pending"))
        text += f"\n### {operation}, ns\n\n"
        rows = []
        for form in of.each("form"):
            for design in of.where(form=form).each("design"):
                one = of.where(form=form, design=design)
                rows.append([design, form, *(one.where(pending=size).text("ns", "{:.0f}") for size in sizes)])
        text += table(["", "", *(f"{size:,}" for size in sizes)], rows)
    return text


def precision(found: Results) -> str:
    text = ""
    for part in found.each("part"):
        of = found.where(part=part)
        names = list(dict.fromkeys(name for line in of.lines for name in line if name not in HIDDEN))
        rows = []
        for label in dict.fromkeys((line.get("design", "loop"), line.get("loop", "")) for line in of.lines):
            same = Results(line for line in of.lines if (line.get("design", "loop"), line.get("loop", "")) == label)
            rows.append([" on ".join(filter(None, label)), *(cell(same, name) for name in names)])
        text += f"\n### {PARTS[part]}\n\n" + table(["", *(name.replace("_", " ") for name in names)], rows)
    return text


def cell(of: Results, name: str) -> str:
    """Numbers as median and range. Other values are the same in each round."""
    first = next((line[name] for line in of.lines if name in line), "")
    if isinstance(first, dict):
        return ", ".join(f"{key}: {value}" for key, value in first.items())
    return of.text(name) if isinstance(first, (int, float)) else str(first)


HIDDEN = {"table", "size", "round", "part", "form", "form_of_peers", "design", "loop"}
PARTS = {
    "virtual_time": "How late, timeouts of 1 ms to 10 min, virtual time (counts of timers)",
    "real_time": "How early and how late, timeouts of 1 to 200 ms, real time",
    "wake_ups": "Wake-ups per second when sparse: 10 timeouts of 30 s per second, 9 of 10 cancelled after 50 ms",
    "stalls": "Longest stall, half of the timers cancelled",
}


def operations(found: Results) -> str:
    text = ""
    for what in found.each("what"):
        of = found.where(what=what)
        series = of.each("series")
        rows = [
            [name, *(of.where(competitor=name, series=each).text("value") for each in series)]
            for name in of.each("competitor")
        ]
        size = of.lines[0]["size"]
        text += f"\n### {of.lines[0]['title']} ({size} size)\n\n" + table(["", *series], rows)
    return text


def micro(found: Results) -> str:
    rows = [
        [operation, *(found.where(operation=operation, form=form).text("ns", "{:.0f}") for form in found.each("form"))]
        for operation in found.each("operation")
    ]
    return table(["", *(f"{form}, ns" for form in found.each("form"))], rows)


def buses_section(found: Results) -> str:
    figures = table(targets.HEAD, targets.rows(found, buses.TARGETS))
    return figures + "\n### All that was measured\n\n" + table(buses.HEAD, buses.detail_rows(found))


SECTIONS: dict[str, tuple[str, Callable[[Results], str]]] = {
    "requests": ("Requests: the seed's benchmark", requests),
    "survivors": ("Who survives with little memory", survivors),
    "ablations": ("Our own choices", ablations),
    "timers": ("Timers alone", timers),
    "precision": ("Precision, wake-ups and stalls", precision),
    "operations": ("Operations", operations),
    "micro": ("Operations that nobody awaits", micro),
    "buses": ("Buses", buses_section),
    "fleets": ("Fleets", fleets.markdown),
    "pipelines": ("Pipeline", pipelines.section),
    "brokers": ("Broker", brokers.section),
    "streams": ("Event streams", streams.section),
    "timeouts": ("Timeouts for blocks of code", timeouts.section),
    "follow": ("Values that are followed", waits.follow),
    "replay": ("A bus that keeps messages", waits.replay),
    "servers": ("Results of other servers' jobs", waits.servers),
}


def markdown(found: Results) -> str:
    text = f"# Results\n\n{measured_on(found)}\n\n{texts.INTRODUCTION}"
    if targets.rows(found):
        text += "\n## What was to be reached\n\n" + table(targets.HEAD, targets.rows(found)) + "\n" + texts.NOTES
    text += f"\n## Where a peer beats us\n\n{losses.beaten(found)}"
    return text + "".join(f"\n## {title}\n\n{body}" for title, body in sections(found).items())


def measured_on(found: Results) -> str:
    machine = found.where(table="machine").lines[0]
    versions = {f"{name} {each}" for line in found.lines for name, each in line.get("versions", {}).items()}
    text = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; "
    return f"{text}{', '.join(sorted(versions))}; {machine['date']}."


def sections(found: Results) -> dict[str, str]:
    """Return the section under each title, for the tables that were measured."""
    written = {}
    for name, (title, section) in SECTIONS.items():
        of = found.where(table=name)
        if of.lines:
            commands = [f"`{COMMAND.format(name, ' --full' * (size == 'full'))}`" for size in of.each("size")]
            if name in OWN_COMMANDS:
                commands = [f"`{OWN_COMMANDS[name]}`: {measured_on(found)}"]
            written[title] = f"{' and '.join(commands)}\n\n{texts.TEXTS[name]}\n\n{section(of)}"
    return written


def replace_sections(text: str, found: Results) -> str:
    """*text*, a RESULTS.md, with the sections of *found* in place of those of the same titles, or after all others."""
    return _with_sections(text, sections(found))


def keep_sections(text: str, old: str) -> str:
    """*text*, a RESULTS.md of a run, with the sections of *old* that commands of their own have measured."""
    titles = [SECTIONS[name][0] for name in OWN_COMMANDS]
    return _with_sections(text, {title: body for title, body in _split(old)[1].items() if title in titles})


def _with_sections(text: str, changed: dict[str, str]) -> str:
    head, kept = _split(text)
    parts = kept | changed
    return head.rstrip() + "\n" + "".join(f"\n## {title}\n\n{body.rstrip()}\n" for title, body in parts.items())


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Return the text above the first section, and the sections by title."""
    head, *parts = text.split("\n## ")
    return head, dict(part.split("\n\n", 1) for part in parts)


def write(paths: Iterable[Path], folder: Path) -> str:
    """Make RESULTS.md and the plots in *folder*. Returns: the former."""
    found = read(paths)
    text = markdown(found)
    (folder / "RESULTS.md").write_text(text)
    plots.draw(found, folder)
    return text


def publish(folder: Path, target: Path) -> None:
    """Copy the files that belong in the repository from *folder* to *target*."""
    results = target / "RESULTS.md"
    results.write_text(keep_sections((folder / "RESULTS.md").read_text(), results.read_text()))
    for path in folder.glob("*.png"):
        shutil.copy(path, target / path.name)
