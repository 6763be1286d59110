"""The sections of the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from ..tables import OUTCOMES, WORK
from .plots import Drawn, figure, linear, logarithmic, stacked, steps
from .promises import REMEDIES, Limits, Promise
from .reading import ROWS, TIMES, Found
from .wording import Markup, count, duration, moment, name, share, table, text, unbroken

_VERDICTS: Final = {"kept": "✓ kept", "broken": "✗ broken", "unknown": "? too few operations"}
_HEADS: Final = ("Verdict", "Promise", "Now", "Limit", "Since", "Worst minute", "Minutes broken")
_MEASURES: Final = {
    "operations": "operations",
    **{f"{outcome}_share": f"share {outcome}" for outcome in OUTCOMES},
    "missed_triggers": "missed triggers",
    "waited_p50_us": "waited p50",
    "waited_p99_us": "waited p99",
    "lateness_p99_us": "late p99",
    "pending_peak": "peak waiting",
}
_TIMES: Final = dict(
    zip(
        TIMES,
        [("waited p50", "waited", "line"), ("waited p99", "waited", "dashed"), ("late p99", "late", "line")],
        strict=True,
    )
)


# The promises


def remedies(stand: Sequence[Promise]) -> Markup:
    """What to do about each kind of promise that is broken."""
    broken: dict[str, list[Promise]] = defaultdict(list)
    for each in stand:
        if each.verdict == "broken":
            broken[each.name].append(each)
    items = "".join(f"<li><b>{what}</b>, {_whose(own)}: {text(REMEDIES[what])}.</li>" for what, own in broken.items())
    return Markup(f"<ul class='remedies'>{items}</ul>" if items else "")


def _whose(own: Sequence[Promise]) -> Markup:
    """The first three with their values, and how many more."""
    named = [
        f"{name(each.purgatory or 'the fleet')} {each.shown(each.now)} (limit {each.shown(each.limit)})"
        for each in own[:3]
    ]
    return Markup(", ".join([*named, *([f"{len(own) - 3} more"] if len(own) > 3 else [])]))


def verdicts(stand: Sequence[Promise], limits: Limits) -> Markup:
    """A verdict for each promise, the broken ones first."""
    order = {"broken": 0, "unknown": 1, "kept": 2}
    ordered = sorted(stand, key=lambda each: order[each.verdict])
    last = max((each.at for each in stand if each.at), default=None)
    now = f"Now means {moment(last)} UTC. " if last else ""
    shown = [each for number, each in enumerate(ordered) if each.verdict == "broken" or number < ROWS]
    rows = "\n".join(_row(each, last) for each in shown)
    head = "".join(f"<th>{each}</th>" for each in _HEADS)
    rest = f"<p>{len(ordered) - len(shown)} more promises are not shown.</p>" if len(ordered) > len(shown) else ""
    return Markup(
        f'<table class="promises"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}'
        f'<p class="soft">{now}Each minute keeps or breaks a promise. A minute in which a purgatory ended fewer than '
        f"{count(limits.fewest)} operations does neither.</p>"
    )


def _row(promise: Promise, last: datetime | None) -> str:
    owner = "the whole fleet" if promise.purgatory is None else name(promise.purgatory)
    cells = ["-", f"{promise.shown(promise.limit)} ({promise.source})", "-", "-", "-"]
    if promise.at is not None:
        now = text(promise.shown(promise.now))
        cells[0] = now if promise.at == last else Markup(f"{now} at {moment(promise.at)}")
        cells[2] = moment(promise.since) if promise.since else "start of the range"
        cells[3:] = [promise.shown(promise.worst), f"{count(promise.broken)} of {count(promise.judged)}"]
    rest = "".join(f'<td data-head="{head}">{text(cell)}</td>' for head, cell in zip(_HEADS[2:], cells, strict=True))
    verdict = f'<span class="verdict {promise.verdict}">{_VERDICTS[promise.verdict]}</span>'
    return f"<tr><td>{verdict}</td><td><b>{promise.name}</b> <span>{owner}</span></td>{rest}</tr>"


# The changes


def changed(found: Found) -> Markup:
    """Compare the newest day with the day before. A change of 0 shows that there is a day before."""
    latest = found.rows["changes"]
    if not latest:
        return Markup("<p>There is no day before to compare with.</p>")
    newest, rows = latest[0].date, [each for each in latest if each.change != 0]
    if not rows:
        return Markup(f"<p>Nothing changed: {newest} was like the day before.</p>")
    about = f"<p>{newest} compared with {newest - timedelta(days=1)}, the largest changes first.</p>"
    heads = ["purgatory", "kind", "what", "the day before", "now", "change"]
    return Markup(about + table(heads, [_change(row) for row in rows], words=3))


def _change(row: Any) -> list[object]:
    measure = _MEASURES.get(row.measure, row.measure.replace("_", " "))
    return [name(row.purgatory), name(row.kind), measure, _value(row, row.before), _value(row, row.now), _grown(row)]


def _value(row: Any, value: float) -> str:
    if row.measure.endswith("_us"):
        return duration(value)
    return share(value) if row.measure.endswith("_share") else count(value)


def _grown(row: Any) -> str:
    before, now = row.before or 0.0, row.now or 0.0
    if not before or not now:
        return "▲ from none" if now else "▼ to none"
    factor = now / before
    if factor >= 2 or factor <= 0.5:
        return f"▲ {factor:.3g} times" if factor > 1 else f"▼ 1/{1 / factor:.3g}"
    return f"▲ +{factor - 1:.1%}" if factor > 1 else f"▼ -{1 - factor:.1%}"


# The load


def load(found: Found) -> Markup:
    """Draw the load of the busiest purgatories on one time axis."""
    if not found.totals:
        return Markup(f"<p>No operation ended on these days.</p>{_lost(found)}")
    parts = [f'<p class="soft">All times are UTC. Each step is {duration(found.axis.step * 1e6)}.</p>', _lost(found)]
    for purgatory in found.totals:
        plots = (_rates(found, purgatory), _waiting(found, purgatory), _times(found, purgatory))
        days = [each for each in found.rows["days"] if each.purgatory == purgatory]
        parts.append(f"<article><h3>{name(purgatory)}</h3>{''.join(plots)}{_days(days)}</article>")
    more = found.everything.purgatories - len(found.totals)
    return Markup("\n".join([*parts, *([f"<p>{more} more purgatories are in the tables.</p>"] if more > 0 else [])]))


def _rates(found: Found, purgatory: str) -> Markup:
    axis, cover = found.axis, np.maximum(found.cover(purgatory), 1)
    rates = [found.curve(purgatory, outcome) / cover for outcome in OUTCOMES]
    highest = _highest(np.sum(rates, axis=0))
    scale = linear(highest)
    drawn = [Drawn(each, each, path) for each, path in zip(OUTCOMES, stacked(axis, scale, rates), strict=True)]
    return figure("Ended per second", f"Operations per second, at most {count(highest)}", axis, scale, drawn)


def _waiting(found: Found, purgatory: str) -> Markup:
    mean, peak = (found.curve(purgatory, each) for each in ("pending_mean", "pending_peak"))
    highest = _highest(peak)
    scale = linear(highest)
    drawn = [
        Drawn("mean", "kind0", stacked(found.axis, scale, [mean])[0]),
        Drawn("peak", "peak", steps(found.axis, scale, peak), "line"),
    ]
    return figure("Waiting at once", f"Operations waiting, at most {count(highest)}", found.axis, scale, drawn)


def _times(found: Found, purgatory: str) -> Markup:
    """Draw the slowest kind or minute of each step: percentiles cannot be added."""
    curves = {each: found.times(purgatory, each) for each in _TIMES}
    every = np.concatenate([[1e3], *(each[each > 0] for each in curves.values())])[1:]
    scale = logarithmic(*((every.min(), every.max()) if len(every) else (1e3, 1e3)))
    drawn = [
        Drawn(label, colour, steps(found.coarse, scale, curves[each]), style)
        for each, (label, colour, style) in _TIMES.items()
    ]
    about = f"Time waited and lateness, at most {duration(_highest(every))}"
    return figure("Time waited and lateness, slowest kind", about, found.coarse, scale, drawn)


def _days(days: Sequence[Any]) -> Markup:
    waited = ("waited_p50_us", "waited_p90_us", "waited_p99_us", "waited_p999_us")
    rows = [
        [
            unbroken(day.date),
            name(day.kind),
            count(day.operations),
            *(share(getattr(day, outcome) / day.operations) if day.operations else "-" for outcome in OUTCOMES),
            *(duration(getattr(day, each)) for each in waited),
            duration(day.lateness_p99_us),
            count(day.pending_peak),
            count(day.missed_triggers),
        ]
        for day in days
    ]
    heads = ("day", "kind", "operations", *OUTCOMES, "waited p50", "p90", "p99", "p99.9", "late p99")
    all_rows = days[0].rows if days else 0
    about = f"<p>The {ROWS} rows with the most operations, of {all_rows} rows:</p>" if all_rows > ROWS else ""
    return Markup(about + table([*heads, "peak waiting", "missed triggers"], rows, words=2))


def _lost(found: Found) -> Markup:
    """Rows that the report does not count."""
    rows = [[each.what, count(each.rows), each.first or "-", each.last or "-"] for each in found.rows["lost"]]
    if not rows:
        return Markup("<p>No row of the journal was dropped or quarantined.</p>")
    return table(["why rows are missing", "rows", "first", "last"], rows)


# Hot keys and work


def hot_keys(found: Found) -> Markup:
    """The keys that most operations watched, of each shown purgatory."""
    if not found.rows["hot_keys"]:
        return Markup("<p>No key was watched.</p>")
    heads = ["key (or its hash)", "operations", "share", "keys per operation"]
    tables: dict[str, list[list[object]]] = {purgatory: [] for purgatory in found.totals}
    for each in found.rows["hot_keys"]:
        tables[each.purgatory].append(_key(each))
    return Markup("\n".join(f"<h3>{name(each)}</h3>{table(heads, rows)}" for each, rows in tables.items()))


def _key(key: Any) -> list[object]:
    shown = name(key.key if key.key is not None else f"#{key.key_hash & (2**64 - 1):016x}")
    bar = f'<span class="bar" style="--share:{min(max(key.share, 0), 1):.3f}">{text(share(key.share))}</span>'
    return [shown, count(key.operations), Markup(bar), f"{key.keys_each:.1f}"]


def work(found: Found) -> Markup:
    """The work of the purgatories: in total, per operation that ended, and per second covered."""
    done = {each.purgatory: each for each in found.rows["work"]}
    if not done:
        return Markup("<p>The journal has no statistics of the purgatories.</p>")
    parts = []
    for purgatory, total in found.totals.items():
        if purgatory in done:
            sums = {measure: getattr(done[purgatory], measure) or 0 for measure in WORK}
            rows = [
                [measure.replace("_", " "), count(n), _ratio(n, total.operations), _ratio(n, total.covered_s)]
                for measure, n in sums.items()
            ]
            own = table(["what", "times", "per operation", "per second"], rows)
            parts.append(f"<div><h3>{name(purgatory)}</h3>{own}</div>")
    return Markup(f'<div class="columns">{"".join(parts)}</div>')


def _ratio(total: float, by: float) -> str:
    return count(total / by) if by else "-"


def _highest(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else 0.0


def settings(found: Found) -> Markup:
    """The settings of the purgatories that run."""
    rows = [
        [name(each.purgatory), count(each.instances), duration(each.tick_s * 1e6), each.wheel_size, each.purge_interval]
        for each in found.rows["settings"]
    ]
    heads = ["purgatory", "instances", "tick", "wheel_size", "purge_interval"]
    in_use = table(heads, rows) if rows else "<p>The journal does not say which settings are in use.</p>"
    return Markup(f"<h3>Settings in use</h3>{in_use}")
