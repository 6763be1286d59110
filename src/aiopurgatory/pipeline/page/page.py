"""The report's page: one file of HTML that loads nothing, needs no script, and is the same for the same tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from types import SimpleNamespace

import pyarrow as pa

from ..minutes.percentiles import ERROR
from ..minutes.units import OUTCOMES
from .promises import Limits, headline, promises
from .reading import SCHEMAS, Pool, minutes_of, read, records, seconds_of
from .sections import changed, hot_keys, load, verdicts, work
from .wording import Markup, count, duration, name, share, table, text


def page(folder: str, *, limits: Limits | None = None, advice: tuple[Markup, Markup] | None = None) -> str:
    """Return the page of the report in *folder*, as HTML.

    Args:
        folder: folder of the tables. Any table may be absent.
        limits: the promises for every minute (default: Limits()).
        advice: the text and the table of an Advice (default: none).
    """
    found = SimpleNamespace(**{name: read(folder, name) for name in SCHEMAS if name not in ("minutes", "seconds")})
    minutes, seconds = minutes_of(folder), seconds_of(folder)
    stand = promises(minutes, found.lost, limits or Limits())
    parts = [
        ("promises", "Promises", "Are we keeping our promises?", verdicts(stand, limits or Limits())),
        ("changes", "Changes", "What changed since the day before", changed(found.changes, found.days)),
        ("load", "Load", "The load over time", load(minutes, seconds, found.days, found.lost)),
        ("keys", "Hot keys", "Hot keys", hot_keys(found.hot_keys, minutes)),
        ("work", "Work", "The purgatories' work", work(found.work, minutes)),
        ("advice", "Advice", "Advice", _advice(advice, found.settings)),
    ]
    body = "\n".join(
        f'<section id="{place}"><h2>{text(title)}</h2>\n{inside}</section>' for place, _, title, inside in parts
    )
    verdict = "broken" if any(each.verdict == "broken" for each in stand) else "kept"
    if all(each.verdict == "unknown" for each in stand):
        verdict = "unknown"
    return _document(
        title=_title(found.days, minutes),
        ended=_ended(minutes),
        verdict=verdict,
        headline=headline(stand),
        links="".join(f'<a href="#{place}">{link}</a>' for place, link, _, _ in parts),
        error=f"{ERROR:.0%}",
        body=body,
    )


def _document(**values: str) -> str:
    """Fill in the template. Values are not searched for placeholders, as a name in the journal may look like one."""
    template = files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _title(days: pa.Table, minutes: Mapping[str, Pool]) -> str:
    dates = [*days["date"].to_pylist()] or [
        datetime.fromtimestamp(int(each.at[end]), UTC).date() for each in minutes.values() for end in (0, -1)
    ]
    if not dates:
        return "No operation ended on these days"
    first, last = min(dates), max(dates)
    return f"Purgatory report, {first}" if first == last else f"Purgatory report, {first} to {last}"


def _ended(minutes: Mapping[str, Pool]) -> Markup:
    """Return one sentence with the share of each outcome."""
    total = sum(each.total("operations") for each in minutes.values())
    if not total:
        return Markup("<p>No operation ended.</p>")
    shares = {name: sum(each.total(name) for each in minutes.values()) / total for name in OUTCOMES}
    ended = ", ".join(f"{share(each)} {name}" for name, each in shares.items())
    return Markup(f"<p><b>{count(total)} operations</b> ended: {text(ended)}.</p>")


def _advice(advice: tuple[Markup, Markup] | None, settings: pa.Table) -> Markup:
    words, options = advice or ("<p>There is no advice yet.</p>", "")
    return Markup(
        f'<div class="beside"><div>{words}</div><div><h3>Settings in use</h3>{_settings(settings)}</div></div>{options}'
    )


def _settings(settings: pa.Table) -> Markup:
    if not len(settings):
        return Markup("<p>The journal does not say which settings are in use.</p>")
    rows = [
        [
            name(each.purgatory),
            count(each.instances),
            duration(each.tick_s * 1e6),
            count(each.wheel_size),
            count(each.purge_interval),
        ]
        for each in sorted(records(settings), key=lambda each: (each.purgatory, each.tick_s))
    ]
    return table(["purgatory", "instances", "tick", "wheel_size", "purge_interval"], rows)
