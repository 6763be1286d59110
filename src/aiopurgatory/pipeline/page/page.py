"""The report's page: one file of HTML that needs nothing beside it and no knowledge of the code."""

from __future__ import annotations

import base64
import html
import io
import warnings
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, TypeAlias

import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ..cleaning.journal_tables import OUTCOMES
from ..minutes.minutes import KEYS, WORK
from ..minutes.percentiles import ERROR
from ..spark import folders

Frame: TypeAlias = Any  # pandas has no types of its own

# The busiest purgatories have pictures; the tables beside the page have all.
_SHOWN: Final = 12
_KINDS: Final = 8
_ROWS: Final = 60
_POINTS: Final = 1_000
_COLOURS: Final = {"completed": "#4c9f70", "expired": "#e0a030", "cancelled": "#8a8fa3", "failed": "#c8423b"}
_MEASURES: Final = {
    "operations": "operations",
    "expired_share": "share expired",
    "failed_share": "share failed",
    "cancelled_share": "share cancelled",
    "missed_triggers": "missed triggers",
    "waited_p50_us": "time waited, half of all",
    "waited_p99_us": "time waited, 99 of 100",
    "lateness_p99_us": "lateness, 99 of 100",
    "pending_peak": "most waiting at once",
}


def page(spark: SparkSession, report: str) -> str:
    """The page of the tables in the folder *report*."""
    days = _read(spark, f"{report}/days").sort_values(["date", *KEYS], ignore_index=True)
    if days.empty:
        return _document("Nothing ended in these days", "<p>The clean table has no operations in them.</p>")
    totals = days.groupby("purgatory").operations.sum().sort_values(ascending=False)
    changes = _read(spark, f"{report}/changes")
    parts = [_overview(days), _changes(changes)]
    for name in totals.index[:_SHOWN]:
        parts.append(_purgatory(spark, report, str(name), days[days.purgatory == name]))
    if len(totals) > _SHOWN:
        parts.append(f"<p>{len(totals) - _SHOWN} more purgatories are in the tables beside this page.</p>")
    first, last = days.date.min(), days.date.max()
    when = f"{first}" if first == last else f"{first} to {last}"
    return _document(f"What waited, {when} (UTC)", "\n".join(parts))


def _read(spark: SparkSession, path: str, purgatory: str | None = None) -> Frame:
    table = spark.read.parquet(path)
    rows: Any = table if purgatory is None else table.where(F.col("purgatory") == purgatory)
    return rows.toPandas()


def _document(title: str, body: str) -> str:
    page = files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8")
    filled = page.replace("{title}", html.escape(title)).replace("{error}", f"{ERROR:.0%}")
    return filled.replace("{body}", body)


def _overview(days: Frame) -> str:
    total = days.operations.sum()
    ended = ", ".join(f"{days[name].sum() / total:.1%} {name}" for name in OUTCOMES)
    missed = days.missed_triggers.sum()
    said = f"<p><b>{_count(total)} operations</b> ended: {ended}. "
    said += f"{_count(missed)} were completed only by the last look at their deadline (missed triggers).</p>"
    shown = days.nlargest(_ROWS, "operations").sort_index()
    rows = [
        [
            day.date,
            day.purgatory,
            day.kind,
            _count(day.operations),
            *(_share(getattr(day, f"{name}_share")) for name in OUTCOMES),
            *(_time(getattr(day, f"waited_{name}_us")) for name in ("p50", "p90", "p99", "p999")),
            _time(day.lateness_p99_us),
            _count(day.pending_peak),
            _count(day.missed_triggers),
        ]
        for day in shown.itertuples()
    ]
    waited = ["waited 50 %", "90 %", "99 %", "99.9 %"]
    heads = [
        "day",
        "purgatory",
        "kind",
        "operations",
        *OUTCOMES,
        *waited,
        "late 99 %",
        "most waiting",
        "missed triggers",
    ]
    if len(days) > _ROWS:
        said += f"<p>The {_ROWS} rows with the most operations of {len(days)}:</p>"
    return said + _table(heads, rows)


def _changes(changes: Frame) -> str:
    title = "<h2>What changed since the day before</h2>"
    if changes.empty:
        return f"{title}<p>There is no day before to compare with, or nothing changed.</p>"
    newest = changes[changes.date == changes.date.max()].head(20)
    rows = [
        [
            row.purgatory,
            row.kind,
            _MEASURES[row.measure],
            *(_value(row.measure, v) for v in (row.before, row.now)),
            _grown(row),
        ]
        for row in newest.itertuples()
    ]
    said = f"<p>{newest.date.iloc[0]} against the day before, the largest changes first.</p>"
    return title + said + _table(["purgatory", "kind", "what", "the day before", "now", "change"], rows)


def _purgatory(spark: SparkSession, report: str, name: str, days: Frame) -> str:
    minutes, keys = (_read(spark, f"{report}/{table}", name) for table in ("minutes", "hot_keys"))
    parts = [f"<h2>{html.escape(name)}</h2>", _ended_plot(minutes), _times_plot(minutes), _pending_plot(minutes)]
    parts.append(_hot_keys(keys))
    if folders.exists(spark, f"{report}/work"):
        parts.append(_work(_read(spark, f"{report}/work", name), days.operations.sum()))
    return "\n".join(parts)


def _grid(minutes: Frame) -> tuple[Any, int]:
    """The points that a plot has room for, and how many minutes lie between them."""
    first, last = minutes.minute.min(), minutes.minute.max()
    width = max(1, int((last - first).total_seconds() / 60 // _POINTS))
    first = first.floor(f"{width}min")
    return pd.date_range(first, last + pd.Timedelta(minutes=width), freq=f"{width}min"), width


def _coarse(minutes: Frame, grid: tuple[Any, int], how: dict[str, str]) -> Frame:
    points, width = grid
    return (
        minutes.groupby((minutes.minute - points[0]) // pd.Timedelta(minutes=width))
        .agg(how)
        .reindex(range(len(points)))
    )


def _ended_plot(minutes: Frame) -> str:
    points, width = grid = _grid(minutes)
    rates = _coarse(minutes, grid, dict.fromkeys(OUTCOMES, "sum")).fillna(0) / (60 * width)
    figure, axes = _axes("How they ended, operations per second")
    axes.stackplot(points, rates.T, labels=OUTCOMES, colors=[_COLOURS[name] for name in OUTCOMES], lw=0)
    axes.set_ylim(bottom=0)
    return _inlined(figure, axes, "operations per second by how they ended, over time")


def _times_plot(minutes: Frame) -> str:
    """Of kinds together, each point is that of the slowest: percentiles cannot be added."""
    names = {
        "waited_p50_us": "half of all waited",
        "waited_p99_us": "99 of 100 waited",
        "lateness_p99_us": "99 of 100 late",
    }
    grid = _grid(minutes)
    slowest = _coarse(minutes, grid, dict.fromkeys(names, "max")) / 1e3
    figure, axes = _axes("Time, milliseconds (of the slowest kind)")
    for (name, label), colour in zip(names.items(), ("#3567a8", "#9cb8dd", "#e0a030"), strict=True):
        axes.plot(grid[0], slowest[name].clip(lower=1e-3), label=label, color=colour, lw=1, marker=".", ms=1.5)
    axes.set_yscale("log")
    return _inlined(figure, axes, "time waited and lateness, over time")


def _pending_plot(minutes: Frame) -> str:
    points, width = grid = _grid(minutes)
    figure, axes = _axes("Waiting at once, by kind: mean, and the peak as a thin line")
    for number, kind in enumerate(minutes.groupby("kind").operations.sum().nlargest(_KINDS).index):
        line = _coarse(minutes[minutes.kind == kind], grid, {"pending_mean": "sum", "pending_peak": "max"}).fillna(0)
        axes.plot(points, line.pending_mean / width, label=_label(kind), color=f"C{number}", lw=1.2)
        axes.plot(points, line.pending_peak, color=f"C{number}", lw=0.4)
    axes.set_ylim(bottom=0)
    return _inlined(figure, axes, "operations waiting at once, over time")


def _label(name: str) -> str:
    """As text: not as TeX, and not hidden as names with a leading underscore are."""
    return " " + name.replace("$", r"\$")[:60]


def _axes(title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(10, 2.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    return figure, axes


def _inlined(figure: Figure, axes: Any, about: str) -> str:
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    axes.margins(x=0)
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # names may have letters that the font has not
        figure.savefig(image, format="png", dpi=110)
    return f'<img alt="{about}" src="data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}">'


def _hot_keys(keys: Frame) -> str:
    title = "<h3>The keys that most operations watched</h3>"
    rows = [
        [
            key.key if isinstance(key.key, str) else f"#{key.key_hash & (2**64 - 1):016x}",
            _count(key.operations),
            _share(key.share),
            f"{key.keys_each:.1f}",
            f"{key.fan_out_mean:,.2f}",
            _count(key.fan_out_peak),
        ]
        for key in keys.itertuples()
    ]
    heads = ["key (or its hash)", "operations", "share", "keys each", "fan-out, mean", "fan-out, most"]
    return title + _table(heads, rows)


def _work(work: Frame, operations: float) -> str:
    said = "<h3>The work of the purgatory</h3>"
    rows = [
        [name.replace("_", " "), _count(work[name].sum()), f"{work[name].sum() / operations:,.3f}"] for name in WORK
    ]
    return said + _table(["what", "times", "per operation"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _time(microseconds: float) -> str:
    if pd.isna(microseconds):
        return "-"
    for unit, size in (("h", 3.6e9), ("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def _value(measure: str, value: float) -> str:
    if measure.endswith("_us"):
        return _time(value)
    return _share(value) if measure.endswith("_share") else _count(value)


def _grown(row: Any) -> str:
    if not row.before or not row.now:
        return "gone" if row.before else "new"
    return f"x {row.now / row.before:.2f}"
