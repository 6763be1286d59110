"""The report's page: one file of HTML that loads nothing, needs no script, and is the same for the same tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..attempts import write
from ..report_tables import COMPARED
from ..tables import ERROR, OUTCOMES, WORK
from .markup import Floats, Markup, count, duration, figure, linear, logarithmic, name, share, table, text
from .promises import PROMISES, REMEDIES, Limits, headline
from .reading import ROWS, SHOWN, TIMES, Found, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: In alphabetical order, and the worst first.
_VERDICTS: Final = {"broken": "✗ broken", "kept": "✓ kept", "unknown": "? too few operations"}


def write_page(spark: SparkSession, out: str, path: Path, limits: Limits | None = None, advice: Any = None) -> None:
    """Write the page of the report in the folder *out*.

    Args:
        path: the file to write or replace, on this machine.
        limits: the promises for every minute (default: Limits()).
        advice: an Advice to show (default: none).
    """
    write(path, page(read(spark, out, limits or Limits()), advice))


def page(found: Found, advice: Any = None) -> str:
    """Return the page as HTML."""
    stand = found.rows["promises"]
    sections = {
        "Promises": verdicts(stand),
        "Changes": changed(found.rows["changes"]),
        "Load": load(found),
        "Hot keys": hot_keys(found.rows["hot_keys"]),
        "Work": work(found.rows["work"]),
        "Advice": _advice(advice) + settings(found.rows["settings"]),
    }
    parts = [*enumerate(sections.items())]
    values = {
        "title": _title(found.everything.dates),
        "ended": _ended(found.everything),
        "verdict": min((each.verdict for each in stand), default="unknown"),
        "headline": text(headline(stand)),
        "remedies": remedies(stand),
        "links": "".join(f'<a href="#part{n}">{title}</a>' for n, (title, _) in parts),
        "error": f"{ERROR:.0%}",
        "body": "\n".join(f'<section id="part{n}"><h2>{title}</h2>\n{own}</section>' for n, (title, own) in parts),
    }
    template = files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8")
    # Values are not searched for placeholders, as a name in the journal may look like one.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)


def _title(dates: Sequence[date]) -> str:
    if not dates:
        return "No operation ended on these days"
    return f"Purgatory report, {' to '.join(dict.fromkeys([f'{min(dates)}', f'{max(dates)}']))}"


def _ended(everything: Any) -> str:
    """Return one sentence with the share of each outcome."""
    total = everything.operations
    ended = ", ".join(f"{text(share(getattr(everything, each) / total))} {each}" for each in OUTCOMES if total)
    return f"<p><b>{count(total)} operations</b> ended{':' if total else ''} {ended}.</p>"


def remedies(stand: Sequence[Any]) -> str:
    """What to do about each kind of promise that is broken."""
    broken = {each.name for each in stand if each.verdict == "broken"}
    items = [f"<li><b>{what}</b>: {text(remedy)}.</li>" for what, remedy in REMEDIES.items() if what in broken]
    return f"<ul class='remedies'>{''.join(items)}</ul>" if items else ""


def verdicts(stand: Sequence[Any]) -> str:
    """A verdict for each promise, the broken ones first."""
    ordered = sorted(stand, key=lambda each: each.verdict)
    shown = [each for number, each in enumerate(ordered) if each.verdict == "broken" or number < ROWS]
    heads = ("verdict", "promise", "of", "now", "limit", "since", "last judged", "worst minute", "minutes broken")
    rest = f"<p>{len(ordered) - len(shown)} more promises are not shown.</p>" if len(ordered) > len(shown) else ""
    return table(heads, [_verdict(each) for each in shown], words=3) + rest


def _verdict(promise: Any) -> list[object]:
    values = promise.now, promise.limit, promise.worst
    now, limit, worst = ("-" if each is None else PROMISES[promise.name][1](each) for each in values)
    since, at = (f"{each:%Y-%m-%d %H:%M}" if each else "-" for each in (promise.since, promise.at))
    verdict = Markup(f'<span class="verdict {promise.verdict}">{_VERDICTS[promise.verdict]}</span>')
    owner = name(promise.purgatory or "the whole fleet")
    minutes = f"{count(promise.broken)} of {count(promise.judged)}"
    return [verdict, promise.name, owner, now, limit, since, at, worst, minutes]


def changed(changes: Sequence[Any]) -> str:
    """Compare the newest day with the day before. A change of 0 shows that there is a day before."""
    if not changes:
        return "<p>There is no day before to compare with.</p>"
    rows = [_change(each) for each in changes if each.change]
    heads = ["purgatory", "kind", "what", "the day before", f"on {changes[0].date}", "change"]
    return table(heads, rows, words=3, nothing=f"Nothing changed: {changes[0].date} was like the day before.")


def _change(row: Any) -> list[object]:
    factor = f"{count(row.now / row.before)} times" if row.before and row.now else "from none" if row.now else "to none"
    change = f"{'▲' if row.change > 0 else '▼'} {factor}"
    values = [_shown(row.measure, each) for each in (row.before, row.now)]
    return [name(row.purgatory), name(row.kind), _words(row.measure), *values, change]


def _words(measure: str) -> str:
    return measure.removesuffix("_us").replace("_", " ")


def _shown(measure: str, value: float | None) -> str:
    shown = duration if measure.endswith("_us") else share if measure.endswith("_share") else count
    return "-" if value is None else shown(value)


def load(found: Found) -> str:
    """Draw the load of the busiest purgatories on one time axis."""
    lost = [[name(each.what), count(each.rows), each.first or "-", each.last or "-"] for each in found.rows["lost"]]
    parts = [
        f'<p class="soft">All times are UTC. Each step is {duration(found.axis.step * 1e6)}. This page shows the '
        f"{SHOWN} busiest purgatories, and of each the {ROWS} rows with the most operations. The tables have all.</p>",
        table(["why rows are missing", "rows", "first", "last"], lost, nothing="No row is missing."),
    ]
    for purgatory in found.totals:
        plots = _rates(found, purgatory) + _waiting(found, purgatory) + _times(found, purgatory)
        days = [_day(each) for each in found.rows["days"] if each.purgatory == purgatory]
        own = table(["day", "kind", *map(_words, COMPARED)], days, words=2)
        parts.append(f"<article><h3>{name(purgatory)}</h3>{plots}{own}</article>")
    return "\n".join(parts)


def _day(day: Any) -> list[object]:
    return [day.date, name(day.kind), *(_shown(each, getattr(day, each)) for each in COMPARED)]


def _rates(found: Found, purgatory: str) -> str:
    rates = [found.curve(purgatory, outcome) / found.axis.seconds for outcome in OUTCOMES]
    # Each area reaches down to 0, and hides the lower part of the one before.
    heights = zip(OUTCOMES, np.cumsum(rates, axis=0), strict=True)
    drawn = [(outcome, f"area {outcome}", values) for outcome, values in heights][::-1]
    return figure("Ended per second", found.axis, linear(_highest(drawn[0][2])), drawn)


def _waiting(found: Found, purgatory: str) -> str:
    mean, peak = (found.curve(purgatory, each) for each in ("pending_mean", "pending_peak"))
    drawn = [("mean", "area pending", mean), ("peak", "line peak", peak)]
    return figure("Waiting at once", found.axis, linear(_highest(peak)), drawn)


def _times(found: Found, purgatory: str) -> str:
    """Draw the slowest kind or minute of each step: percentiles cannot be added."""
    curves = np.array([np.maximum(found.curve(purgatory, each, np.nan), 1.0) for each in TIMES])
    drawn = [(*words, values) for words, values in zip(TIMES.values(), np.log10(curves), strict=True)]
    ticks = logarithmic(float(np.nanmin(curves, initial=1e9)), _highest(curves))
    return figure("Time waited and lateness, slowest kind", found.axis, ticks, drawn)


def _highest(values: Floats) -> float:
    return float(np.nanmax(values, initial=0.0))


def hot_keys(keys: Sequence[Any]) -> str:
    """The keys that most operations watched, of each shown purgatory."""
    rows = [
        [name(each.purgatory), name(each.key), count(each.operations), share(each.share), count(each.keys_each)]
        for each in keys
    ]
    heads = ["purgatory", "key (or its hash)", "operations", "share", "keys per operation"]
    return table(heads, rows, words=2, nothing="No key was watched.")


def work(rows: Sequence[Any]) -> str:
    """How often the purgatories did their work."""
    cells = [[name(each.purgatory), *(_shown(what, getattr(each, what)) for what in WORK)] for each in rows]
    nothing = "The journal has no statistics of the purgatories."
    return table(["purgatory", *map(_words, WORK)], cells, nothing=nothing)


def settings(rows: Sequence[Any]) -> str:
    """The settings of the purgatories that run."""
    cells = [
        [name(each.purgatory), count(each.instances), duration(each.tick_s * 1e6), each.wheel_size, each.purge_interval]
        for each in rows
    ]
    heads = ["purgatory", "instances", "tick", "wheel_size", "purge_interval"]
    return f"<h3>Settings in use</h3>{table(heads, cells, nothing='The journal does not say.')}"


def _advice(advice: Any) -> str:
    if advice is None:
        return "<p>There is no advice yet.</p>"
    items = "".join(f"<li>{text(each)}</li>" for each in advice.sentences)
    options = table([*advice.rows[0]], [[*row.values()] for row in advice.rows])
    words = re.sub(r"`(.*?)`", r"<code>\1</code>", text(advice.headline))
    return f"<p><b>{words}</b></p><ul>{items}</ul>{options}"
