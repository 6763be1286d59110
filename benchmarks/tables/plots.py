"""Draw a plot per workload, in the style of Kafka's, and one of the timers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import figure as drawing
from matplotlib import rcParams
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from .results import Results

PANELS = [
    ("achieved_per_second", "achieved, thousands / s", 1000.0),
    ("cpu_seconds_per_million", "CPU s per 1M requests", 1.0),
    ("gc_seconds_per_million", "garbage collection, s per 1M", 1.0),
    ("late_p99_ms", "lateness of time-outs, p99, ms", 1.0),
]
COLOURS: list[str] = rcParams["axes.prop_cycle"].by_key()["color"]


def draw(found: Results, folder: Path) -> None:
    rates = found.where(table="requests")
    for workload in rates.each("workload"):
        draw_requests(rates.where(workload=workload), workload, folder / file_name(workload))
    if found.where(table="timers").lines:
        draw_timers(found.where(table="timers"), folder / "timers.png")


def file_name(workload: str) -> str:
    return f"{workload.partition(',')[0]}{'-crowded' if ',' in workload else ''}.png"


def draw_requests(found: Results, workload: str, path: Path) -> None:
    page = drawing.Figure(figsize=(13, 9), layout="constrained")
    page.suptitle(f"{workload} time-outs")
    for axes, (name, title, unit) in zip(page.subplots(2, 2).flat, PANELS, strict=True):
        for number, competitor in enumerate(found.each("competitor")):
            curve(axes, found.where(competitor=competitor), name, unit, number)
        axes.set(title=title, xlabel="target, thousands / s")
        axes.grid(alpha=0.3)
        if name == "achieved_per_second":
            axes.axline((0, 0), slope=1, color="0.7", linestyle=":")
        if name == "late_p99_ms":
            axes.axhline(20, color="0.7", linestyle=":")
        if name in ("late_p99_ms", "cpu_seconds_per_million"):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
    axes_of_all = page.axes[0]
    page.legend(*axes_of_all.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    page.savefig(path, dpi=100)


def curve(axes: Any, found: Results, name: str, unit: float, number: int) -> None:
    """Draw medians, with the range as bars."""
    rates = [rate for rate in found.each("rate") if rate]
    points = [[value / unit for value in found.where(rate=rate).values(name)] for rate in rates]
    middle = [sorted(values)[len(values) // 2] for values in points]
    spread = [
        [m - min(v) for m, v in zip(middle, points, strict=True)],
        [max(v) - m for m, v in zip(middle, points, strict=True)],
    ]
    style = "-" if number < 5 else "--"
    at = [rate / 1000 for rate in rates]
    label = found.lines[0]["competitor"]
    axes.errorbar(
        at,
        middle,
        yerr=spread,
        label=label,
        color=COLOURS[number % len(COLOURS)],
        linestyle=style,
        marker=".",
        capsize=2,
    )


def draw_timers(found: Results, path: Path) -> None:
    """Flat or growing?"""
    operations = found.each("operation")
    page = drawing.Figure(figsize=(13, 5), layout="constrained")
    for axes, operation in zip(page.subplots(1, len(operations), squeeze=False).flat, operations, strict=True):
        of = found.where(operation=operation)
        for form, style in (("compiled", "-"), ("interpreted", "--")):
            for design in of.where(form=form).each("design"):
                one = of.where(form=form, design=design)
                sizes = sorted(one.each("pending"))
                medians = [one.where(pending=size).median("ns") for size in sizes]
                colour = COLOURS[of.each("design").index(design)]
                axes.plot(sizes, medians, label=f"{design}, {form}", color=colour, linestyle=style, marker=".")
        axes.set(title=operation, xlabel="pending", ylabel="CPU ns", xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    page.savefig(path, dpi=100)
