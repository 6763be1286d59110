"""The report's page: one file of HTML that loads nothing, needs no script, and is the same for the same tables."""

from __future__ import annotations

import re
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import documents
from ..tables import ERROR, OUTCOMES
from .promises import Limits, headline
from .reading import Found, read
from .sections import changed, hot_keys, load, remedies, settings, verdicts, work
from .wording import Markup, count, share, table, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH: Final = date(1970, 1, 1)


def write_page(spark: SparkSession, out: str, path: Path, limits: Limits | None = None, advice: Any = None) -> None:
    """Write the page of the report in the folder *out*.

    Args:
        path: the file to write or replace, on this machine.
        limits: the promises for every minute (default: Limits()).
        advice: an Advice to show (default: none).
    """
    limits = limits or Limits()
    documents.write(path, page(read(spark, out, limits), limits, advice))


def page(found: Found, limits: Limits, advice: Any = None) -> str:
    """Return the page as HTML."""
    stand = found.promises
    parts = [
        ("promises", "Promises", "Are we keeping our promises?", verdicts(stand, limits)),
        ("changes", "Changes", "What changed since the day before", changed(found)),
        ("load", "Load", "The load over time", load(found)),
        ("keys", "Hot keys", "Hot keys", hot_keys(found)),
        ("work", "Work", "The purgatories' work", work(found)),
        ("advice", "Advice", "Advice", Markup(_advice(advice) + settings(found))),
    ]
    sections = [
        f'<section id="{place}"><h2>{text(title)}</h2>\n{inside}</section>' for place, _, title, inside in parts
    ]
    verdicts_of = {each.verdict for each in stand}
    values = {
        "title": _title(found),
        "ended": _ended(found),
        "verdict": next(each for each in ("broken", "kept", "unknown") if each in verdicts_of),
        "headline": text(headline(stand)),
        "remedies": remedies(stand),
        "links": "".join(f'<a href="#{place}">{link}</a>' for place, link, _, _ in parts),
        "error": f"{ERROR:.0%}",
        "body": "\n".join(sections),
    }
    template = files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8")
    # Values are not searched for placeholders, as a name in the journal may look like one.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)


def _title(found: Found) -> str:
    if not found.everything.dates:
        return "No operation ended on these days"
    first, last = (_EPOCH + timedelta(days=each(found.everything.dates)) for each in (min, max))
    return f"Purgatory report, {first}" if first == last else f"Purgatory report, {first} to {last}"


def _ended(found: Found) -> Markup:
    """Return one sentence with the share of each outcome."""
    total = found.everything.operations
    if not total:
        return Markup("<p>No operation ended.</p>")
    ended = ", ".join(f"{share(getattr(found.everything, each) / total)} {each}" for each in OUTCOMES)
    return Markup(f"<p><b>{count(total)} operations</b> ended: {text(ended)}.</p>")


def _advice(advice: Any) -> Markup:
    if advice is None:
        return Markup("<p>There is no advice yet.</p>")
    items = "".join(f"<li>{text(each)}</li>" for each in advice.sentences)
    options = table([*advice.rows[0]], [[*row.values()] for row in advice.rows])
    words = re.sub(r"`(.*?)`", r"<code>\1</code>", text(advice.headline))
    return Markup(f"<p><b>{words}</b></p><ul>{items}</ul>{options}")
