"""The sections of the page. Each is made from the tables that it needs."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..minutes.units import OUTCOMES
from ..minutes.work import WORK
from .load import DAY, KINDS, Axis, Load, axis_of, load_of, lost_of
from .plots import Drawn, figure, linear, logarithmic, stacked, steps, whole_days
from .promises import Limits, Promise
from .reading import MINUTE, Pool, records
from .wording import Markup, count, duration, moment, name, share, table, text, unbroken

#: How many purgatories, the busiest first, have plots. The tables beside the page have all.
SHOWN: Final = 12
_ROWS: Final = 60
_CHANGES: Final = 20
_SIGNS: Final = {"kept": "✓", "broken": "✗", "unknown": "?"}
_VERDICTS: Final = {"kept": "kept", "broken": "broken", "unknown": "too few operations"}
_MEASURES: Final = {
    "operations": "operations",
    **{f"{outcome}_share": f"share {outcome}" for outcome in OUTCOMES},
    "missed_triggers": "missed triggers",
    "waited_p50_us": "waited p50",
    "waited_p99_us": "waited p99",
    "lateness_p99_us": "late p99",
    "pending_peak": "peak waiting",
}
_TIMES: Final = {
    "waited_p50_us": ("waited p50", "waited", "line"),
    "waited_p99_us": ("waited p99", "waited", "dashed"),
    "lateness_p99_us": ("late p99", "late", "line"),
}


# The promises


def verdicts(stand: Sequence[Promise], limits: Limits) -> Markup:
    """A verdict for each promise, the broken ones first."""
    order = {"broken": 0, "unknown": 1, "kept": 2}
    ordered = sorted(stand, key=lambda each: order[each.verdict])
    last = max((each.at for each in stand if each.at), default=None)
    now = f"Now means {moment(last)} UTC. " if last else ""
    shown = [each for number, each in enumerate(ordered) if each.verdict == "broken" or number < _ROWS]
    rows = "\n".join(_row(each, last) for each in shown)
    heads = ("Verdict", "Promise", "Now", "Limit", "Since", "Worst minute", "Minutes broken")
    head = "".join(f"<th>{each}</th>" for each in heads)
    rest = f"<p>{len(ordered) - len(shown)} more promises are not shown.</p>" if len(ordered) > len(shown) else ""
    return Markup(
        f'<table class="promises"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}'
        f'<p class="soft">{now}Each minute keeps or breaks a promise. A minute in which a purgatory ended fewer than '
        f"{count(limits.fewest)} operations does neither.</p>"
    )


def _row(promise: Promise, last: datetime | None) -> str:
    owner = name(promise.purgatory) if promise.purgatory is not None else Markup("the whole fleet")
    cells: list[tuple[str, object]] = [("Now", "-"), ("Limit", f"{promise.shown(promise.limit)} ({promise.source})")]
    if promise.verdict == "unknown":
        cells += [("Since", "-"), ("Worst minute", "-"), ("Minutes broken", "-")]
    else:
        assert promise.at is not None
        nothing = promise.name == "late p99"
        now, worst = (
            "nothing expired" if np.isnan(value) and nothing else promise.shown(value)
            for value in (promise.now, promise.worst)
        )
        cells[0] = ("Now", now if promise.at == last else Markup(f"{text(now)} at {moment(promise.at)}"))
        cells += [
            ("Since", moment(promise.since) if promise.since else "start of the range"),
            ("Worst minute", worst),
            ("Minutes broken", f"{count(promise.broken)} of {count(promise.judged)}"),
        ]
    rest = "".join(f'<td data-head="{head}">{text(cell)}</td>' for head, cell in cells)
    verdict = f'<span class="verdict {promise.verdict}">{_SIGNS[promise.verdict]} {_VERDICTS[promise.verdict]}</span>'
    return f"<tr><td>{verdict}</td><td><b>{promise.name}</b> <span>{owner}</span></td>{rest}</tr>"


# The changes


def changed(changes: pa.Table, days: pa.Table) -> Markup:
    """Compare the newest day with the day before. A change of 0 shows that there is a day before."""
    dates = {*days["date"].to_pylist(), *changes["date"].to_pylist()}
    if not dates:
        return Markup("<p>There is no day before to compare with.</p>")
    newest = max(dates)
    latest = records(changes.filter(pc.equal(changes["date"], newest)))
    rows = [each for each in latest if each.change != 0]
    if rows:
        rows.sort(key=lambda each: (-abs(each.change), each.purgatory, each.kind, each.measure))
        about = f"<p>{newest} compared with {newest - timedelta(days=1)}, the largest changes first.</p>"
        heads = ["purgatory", "kind", "what", "the day before", "now", "change"]
        return Markup(about + table(heads, [_change(row) for row in rows[:_CHANGES]], words=3))
    if latest or newest - timedelta(days=1) in dates:
        return Markup(f"<p>Nothing changed: {newest} was like the day before.</p>")
    return Markup("<p>There is no day before to compare with.</p>")


def _change(row: Any) -> list[object]:
    measure = _MEASURES.get(row.measure, row.measure.replace("_", " "))
    return [name(row.purgatory), name(row.kind), measure, _value(row, row.before), _value(row, row.now), _grown(row)]


def _value(row: Any, value: float) -> str:
    if row.measure.endswith("_us"):
        return duration(value)
    return share(value) if row.measure.endswith("_share") else count(value)


def _grown(row: Any) -> str:
    before, now = (0.0 if np.isnan(each) else each for each in (row.before, row.now))
    if not before or not now:
        return "▲ from none" if now else "▼ to none"
    factor = now / before
    if factor >= 2 or factor <= 0.5:
        return f"▲ {factor:.3g} times" if factor > 1 else f"▼ 1/{1 / factor:.3g}"
    return f"▲ +{factor - 1:.1%}" if factor > 1 else f"▼ -{1 - factor:.1%}"


# The load


def load(minutes: Mapping[str, Pool], seconds: Mapping[str, Pool], days: pa.Table, lost: pa.Table) -> Markup:
    """Draw lost rows, and the load of the busiest purgatories, on one time axis."""
    if not minutes and not seconds:
        return Markup(f"<p>No operation ended on these days.</p>{_lost_table(lost)}")
    axis = axis_of(minutes, seconds)
    parts = [f'<p class="soft">All times are UTC. Each step is {duration(axis.step * 1e6)}.</p>', _lost(axis, lost)]
    for purgatory, rows in [*minutes.items()][:SHOWN]:
        found = load_of(axis, rows, seconds.get(purgatory))
        plots = (_rates(found), _waiting(found), _times(found))
        own = days.filter(pc.field("purgatory") == purgatory)
        parts.append(f"<article><h3>{name(purgatory)}</h3>{''.join(plots)}{_days(own)}</article>")
    if len(minutes) > SHOWN:
        parts.append(f"<p>{len(minutes) - SHOWN} more purgatories are in the tables beside this page.</p>")
    return Markup("\n".join(parts))


def _rates(found: Load) -> Markup:
    axis, rates = found.rates.axis, found.rates.values
    total = np.sum([rates[outcome] for outcome in OUTCOMES], axis=0)
    highest = _highest(total)
    scale = linear(highest)
    paths = zip(OUTCOMES, stacked(axis, scale, [rates[outcome] for outcome in OUTCOMES]), strict=True)
    about = f"Operations per second by outcome over time, at most {count(highest)}"
    return figure("Ended per second", about, axis, scale, [Drawn(each, each, path) for each, path in paths])


def _waiting(found: Load) -> Markup:
    axis, means = found.waiting.axis, found.waiting.values
    highest = _highest(found.peak)
    scale = linear(highest)
    paths = zip(means, stacked(axis, scale, list(means.values())), strict=True)
    drawn = [Drawn(Markup(f"mean, {name(kind)}"), f"kind{min(n, KINDS)}", path) for n, (kind, path) in enumerate(paths)]
    peak = "peak" if found.peak_exact else "sum of the kinds' peaks"
    drawn.append(Drawn(peak, "peak", steps(axis, scale, found.peak), "line"))
    return figure("Waiting at once", f"Operations waiting over time, at most {count(highest)}", axis, scale, drawn)


def _times(found: Load) -> Markup:
    """Draw the slowest kind or minute of each step: percentiles cannot be added."""
    axis, times = found.times.axis, found.times.values
    every = np.concatenate([times[each] for each in _TIMES])
    every = every[every > 0]
    scale = logarithmic(*((every.min(), every.max()) if len(every) else (np.nan, np.nan)))
    drawn = [
        Drawn(label, colour, steps(axis, scale, times[each]), style) for each, (label, colour, style) in _TIMES.items()
    ]
    about = f"Time waited and lateness over time, at most {duration(_highest(every))}"
    return figure("Time waited and lateness, slowest kind", about, axis, scale, drawn)


def _days(days: pa.Table) -> Markup:
    shown = sorted(records(days), key=lambda day: -day.operations)[:_ROWS]
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
        for day in sorted(shown, key=lambda day: (day.date, -day.operations))
    ]
    heads = ("day", "kind", "operations", *OUTCOMES, "waited p50", "p90", "p99", "p99.9", "late p99")
    about = f"<p>The {_ROWS} rows with the most operations, of {len(days)} rows:</p>" if len(days) > _ROWS else ""
    return Markup(about + table([*heads, "peak waiting", "missed triggers"], rows, words=2))


def _lost(axis: Axis, lost: pa.Table) -> Markup:
    """Rows that the report does not count, on the axis of the load."""
    if not pc.sum(lost["rows"]).as_py():
        return Markup("<p>No row of the journal was dropped or quarantined.</p>")
    found = lost_of(axis, lost)
    highest = _highest(np.sum(list(found.values.values()), axis=0))
    scale = linear(highest)
    paths = zip(found.values, stacked(found.axis, scale, list(found.values.values())), strict=True)
    drawn = [Drawn(each, each, path) for each, path in paths]
    days = lost.filter(lost["minute"].is_null())["date"].unique().drop_null().cast(pa.int32()).to_numpy()
    if len(days):
        bands = whole_days(axis, (days * float(DAY)).tolist())
        drawn.insert(0, Drawn("on this day, minute unknown", "someday", bands))
    unit = "per minute" if found.axis.step == MINUTE else f"per {duration(found.axis.step * 1e6)}"
    about = f"Rows dropped and quarantined over time, at most {count(highest)} {unit}"
    return Markup(figure(f"Rows dropped or quarantined {unit}", about, axis, scale, drawn) + _lost_table(lost))


def _lost_table(lost: pa.Table) -> Markup:
    if not len(lost):
        return Markup("")
    groups: dict[str, list[Any]] = defaultdict(list)
    for each in records(lost):
        groups[each.what].append(each)
    sums = {what: sum(each.rows for each in group) for what, group in groups.items()}
    ordered = sorted(groups, key=lambda what: (what != "dropped", -sums[what], what))
    rows = [[what, count(sums[what]), *_first_and_last(groups[what])] for what in ordered]
    return table(["why rows are missing", "rows", "first", "last"], rows)


def _first_and_last(lost: Sequence[Any]) -> tuple[str, str]:
    """The first and last time, to the minute, or to the day where the minute is unknown."""
    seen = [(f"{row.date}", f"{row.minute:%H:%M}" if row.minute else "") for row in lost]
    first, last = min(seen), max(seen)
    return " ".join(first).strip(), " ".join(last).strip()


# Hot keys and work


def hot_keys(keys: pa.Table, order: Iterable[str]) -> Markup:
    """The keys that most operations watched, of each purgatory in *order*."""
    if not len(keys):
        return Markup("<p>No key was watched.</p>")
    tables: dict[str, list[Any]] = defaultdict(list)
    for each in sorted(records(keys), key=lambda each: each.place):
        tables[each.purgatory].append(each)
    ordered = [each for each in order if each in tables][:SHOWN]
    heads = ["key (or its hash)", "operations", "share", "keys per operation"]
    return Markup("\n".join(f"<h3>{name(each)}</h3>{table(heads, _keys(tables[each]))}" for each in ordered))


def _keys(keys: Sequence[Any]) -> list[list[object]]:
    return [
        [
            name(key.key) if isinstance(key.key, str) else name(f"#{int(key.key_hash) & (2**64 - 1):016x}"),
            count(key.operations),
            Markup(
                f'<span class="bar" style="--share:{min(max(key.share, 0), 1):.3f}">{text(share(key.share))}</span>'
            ),
            f"{key.keys_each:.1f}",
        ]
        for key in keys
    ]


def work(done: pa.Table, minutes: Mapping[str, Pool]) -> Markup:
    """The work of the purgatories: in total, per operation that ended, and per second covered."""
    if not len(done):
        return Markup("<p>The journal has no statistics of the purgatories.</p>")
    totals = done.group_by("purgatory").aggregate([(measure, "sum") for measure in WORK])
    sums = {row["purgatory"]: [row[f"{measure}_sum"] or 0 for measure in WORK] for row in totals.to_pylist()}
    shown = [each for each in minutes if each in sums] + sorted(sums.keys() - minutes.keys())
    parts = []
    for purgatory in shown[:SHOWN]:
        own = minutes.get(purgatory)
        per = [own.total(each) if own else 0.0 for each in ("operations", "covered_s")]
        rows = [
            [measure.replace("_", " "), count(total), *(_ratio(total, by) for by in per)]
            for measure, total in zip(WORK, sums[purgatory], strict=True)
        ]
        parts.append(
            f"<div><h3>{name(purgatory)}</h3>{table(['what', 'times', 'per operation', 'per second'], rows)}</div>"
        )
    return Markup(f'<div class="columns">{"".join(parts)}</div>')


def _ratio(total: float, by: float) -> str:
    return count(total / by) if by else "-"


def _highest(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else 0.0
