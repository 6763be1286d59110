"""The report's page: one file of HTML that loads nothing, needs no script, and is the same for the same tables.

The template ``page.html`` has its words and tables, and Jinja escapes the names from the journal. Spark pools the
tables of the report to what fits a page: a few hundred steps, the busiest purgatories.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from jinja2 import Environment, StrictUndefined, Template
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..attempts import committed, places_of, table, valid, write
from ..report_tables import COMPARED
from ..session import at_once
from ..tables import ERROR, OUTCOMES, REPORT, WORK
from .figures import DAY, MINUTE, Axis, Floats, Plot, axis_of, count, duration, linear, logarithmic, plot, share, shown
from .findings import findings
from .promises import PROMISES, Limits, verdicts

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: How many purgatories, the busiest first, are shown. The tables have all.
SHOWN: Final = 12
#: The most rows of a table on the page, and of changes.
ROWS: Final = 60
CHANGES: Final = 20
#: The most promises that the headline counts, broken ones first.
MOST_PROMISES: Final = 10_000
#: Labels and CSS classes by column. Percentiles cannot be added: of several, the page shows the largest.
TIMES: Final = {
    "waited_p50_us": ("waited p50", "line waited"),
    "waited_p99_us": ("waited p99", "dashed waited"),
    "lateness_p99_us": ("lateness p99", "line late"),
}


@dataclass(frozen=True)
class Found:
    """What the page shows."""

    #: Sums of all operations, and of each shown purgatory.
    everything: Any
    totals: Mapping[str, Any]
    #: Rows of the small tables, by name.
    rows: Mapping[str, Sequence[Any]]
    axis: Axis

    def curve(self, purgatory: str, name: str, silent: float = 0.0) -> Floats:
        """The column *name* of one purgatory by step: *silent* where it has no row, NaN on days without one."""
        days = np.array(self.totals[purgatory].dates, "datetime64[D]").astype(int)
        found = np.where(np.isin(self.axis.edges[:-1] // DAY, days), silent, np.nan)
        for each in self.rows["load"]:
            if each.purgatory == purgatory:
                found[each.step] = getattr(each, name)
        return found


def read(spark: SparkSession, out: str, limits: Limits) -> Found:
    """Read the report in the folder *out*."""
    places = places_of(spark, out, committed(spark, out, "report"))
    tables = {name: table(spark, out, name, places) for name in REPORT}
    minutes, is_short = tables["minutes"], bool(tables["seconds"].head(1))
    load = by_second(tables["seconds"], minutes) if is_short else minutes
    first = _collected(
        totals=busiest(tables["days"], SHOWN),
        promises=verdicts(minutes, tables["work"], limits).limit(MOST_PROMISES),
        findings=findings(tables, limits).limit(ROWS),
        ends=load.agg(*(F.unix_seconds(end("minute")) for end in (F.min, F.max))),
        changes=latest(tables["changes"]),
        settings=tables["settings"].orderBy("purgatory", "tick_s").limit(ROWS),
        lost=reasons(tables["lost"], tables["work"]),
    )
    everything, *shown = first["totals"] or [SimpleNamespace(purgatory=None, operations=0.0, dates=[])]
    axis = axis_of(*vars(first["ends"][0]).values(), unit=1 if is_short else MINUTE)
    is_shown = F.col("purgatory").isin([each.purgatory for each in shown])
    key = F.coalesce("key", F.format_string("#%016x", "key_hash"))
    later = _collected(
        load=steps(load.where(is_shown), tables["work"], axis),
        timeouts=tables["timeouts"].where(is_shown).where("expired_share < 0.999 OR is_in_use").limit(10 * ROWS),
        days=largest(tables["days"].where(is_shown)),
        hot_keys=tables["hot_keys"].where(is_shown).withColumn("key", key).orderBy("purgatory", "place"),
        work=tables["work"].where(is_shown).groupBy("purgatory").agg(*(F.sum(name).alias(name) for name in WORK)),
    )
    return Found(everything, {each.purgatory: each for each in shown}, first | later, axis)


def _collected(**frames: DataFrame) -> dict[str, list[Any]]:
    """Collect small tables."""
    tables = at_once(valid(frame).toArrow for frame in frames.values())
    return dict(zip(frames, map(records, tables), strict=True))


def records(rows: pa.Table) -> list[SimpleNamespace]:
    """Return the rows of a small table."""
    return [SimpleNamespace(**row) for row in rows.to_pylist()]


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
    plotted = {purgatory: [make(found, purgatory) for make in (_rates, _waiting, _times)] for purgatory in found.totals}
    return _template().render(found.rows, everything=found.everything, axis=found.axis, plots=plotted, advice=advice)


def _template() -> Template:
    made = Environment(
        autoescape=True, finalize=_printable, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(count=count, share=share, duration=duration, shown=shown, labelled=_labelled)
    made.globals.update(COMPARED=COMPARED, ERROR=ERROR, OUTCOMES=OUTCOMES, PROMISES=PROMISES, WORK=WORK)
    made.globals.update(ROWS=ROWS, SHOWN=SHOWN)
    return made.from_string(files("aiopurgatory.pipeline.page").joinpath("page.html").read_text(encoding="utf-8"))


def _labelled(rows: str, names: Sequence[str]) -> str:
    """Give each cell of the *rows* of a table the name of its column: phones show it beside the value."""

    def cells(row: str) -> str:
        parts = row.split("<td")
        labels = (f'<td data-label="{html.escape(name)}"' for name in names)
        return parts[0] + "".join(label + part for label, part in zip(labels, parts[1:], strict=False))

    return "<tr".join(cells(row) for row in str(rows).split("<tr"))


def _printable(value: object) -> object:
    """Replace the control characters of a string. Markup, which Jinja has made, stays as it is."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def _rates(found: Found, purgatory: str) -> Plot:
    rates = [found.curve(purgatory, outcome) / found.axis.seconds for outcome in OUTCOMES]
    # Each area reaches down to 0, and hides the lower part of the one before.
    heights = zip(OUTCOMES, np.cumsum(rates, axis=0), strict=True)
    drawn = [(outcome, f"area {outcome}", values) for outcome, values in heights][::-1]
    return plot("Ended per second", found.axis, linear(_highest(drawn[0][2])), drawn)


def _waiting(found: Found, purgatory: str) -> Plot:
    mean, peak = (found.curve(purgatory, each) for each in ("pending_mean", "pending_peak"))
    drawn = [("mean", "area pending", mean), ("peak", "line peak", peak)]
    return plot("Waiting at once", found.axis, linear(_highest(peak)), drawn)


def _times(found: Found, purgatory: str) -> Plot:
    """Draw the slowest kind or minute of each step: percentiles cannot be added."""
    curves = np.array([np.maximum(found.curve(purgatory, each, np.nan), 1.0) for each in TIMES])
    drawn = [(*words, values) for words, values in zip(TIMES.values(), np.log10(curves), strict=True)]
    ticks = logarithmic(float(np.nanmin(curves, initial=1e9)), _highest(curves))
    return plot("Time waited and lateness, slowest kind", found.axis, ticks, drawn)


def _highest(values: Floats) -> float:
    return float(np.nanmax(values, initial=0.0))


# DataFrame -> DataFrame


def busiest(days: DataFrame, number: int) -> DataFrame:
    """Days -> the sums and dates of all purgatories, whose name is null, and of the *number* busiest."""
    summed = days.rollup("purgatory").agg(
        *(F.sum(name).alias(name) for name in ("operations", *OUTCOMES)),
        F.collect_set("date").alias("dates"),
        F.grouping("purgatory").alias("is_all"),
    )
    return summed.orderBy(F.desc("is_all"), F.desc("operations"), "purgatory").limit(number + 1)


def by_second(seconds: DataFrame, minutes: DataFrame) -> DataFrame:
    """Seconds -> the same in the columns of minutes, with the percentiles of their minute."""
    pending = [F.col("pending").alias(name) for name in ("pending_mean", "pending_peak")]
    times = minutes.select("purgatory", "kind", "minute", *TIMES)
    both = seconds.withColumn("minute", F.date_trunc("minute", "second"))
    both = both.join(times, ["purgatory", "kind", "minute"], "left")
    return both.select("purgatory", F.col("second").alias("minute"), *OUTCOMES, *pending, *TIMES)


def steps(minutes: DataFrame, work: DataFrame, axis: Axis) -> DataFrame:
    """Minutes, work -> the load of each purgatory by step of *axis*, all of its kinds together.

    The statistics know of all that are waiting, rows only of operations that have ended.
    """
    largest_of = [F.max(name).alias(name) for name in TIMES]
    counts = [F.sum(name).alias(name) for name in (*OUTCOMES, "pending_mean", "pending_peak")]
    known = work.select("purgatory", F.col("minute").alias("of_minute"), "pending")
    of_minute = F.date_trunc("minute", "minute").alias("of_minute")
    each = minutes.groupBy("purgatory", "minute", of_minute).agg(*counts, *largest_of)
    pooled = each.join(known, ["purgatory", "of_minute"], "left")
    pooled = pooled.withColumns({name: F.greatest(name, "pending") for name in ("pending_mean", "pending_peak")})
    number = F.expr(f"CAST(unix_seconds(minute) div {axis.step} - {int(axis.start // axis.step)} AS INT)")
    return pooled.groupBy("purgatory", number.alias("step")).agg(
        *(F.sum(name).alias(name) for name in OUTCOMES),
        *(F.avg("pending_mean").alias("pending_mean"), F.max("pending_peak").alias("pending_peak"), *largest_of),
    )


def latest(changes: DataFrame) -> DataFrame:
    """Changes -> the largest of the newest day. One of 0 is among them if there are no others."""
    newest = changes.agg(F.max("date").alias("date"))
    order = F.desc(F.abs("change")), "purgatory", "kind", "measure"
    return changes.join(F.broadcast(newest), "date", "left_semi").orderBy(*order).limit(CHANGES)


def largest(days: DataFrame) -> DataFrame:
    """Days -> those with the most operations of each purgatory."""
    order = Window.partitionBy("purgatory").orderBy(F.desc("operations"), "date", "kind")
    found = days.withColumn("place", F.row_number().over(order)).where(F.col("place") <= ROWS)
    return found.orderBy("date", F.desc("operations"), "kind")


def reasons(lost: DataFrame, work: DataFrame) -> DataFrame:
    """Lost rows, work -> what, rows, and the first and the last minute of dropped rows, or day of others."""
    minute = F.date_format("minute", "yyyy-MM-dd HH:mm").alias("at")
    rows = F.lit("dropped").alias("what"), F.col("dropped_rows").alias("rows"), minute
    both = work.where("dropped_rows > 0").select(*rows).union(lost.select("what", "rows", F.col("date").cast("string")))
    found = both.groupBy("what").agg(F.sum("rows").alias("rows"), F.min("at").alias("first"), F.max("at").alias("last"))
    return found.orderBy(F.col("what") != "dropped", F.desc("rows"), "what").limit(ROWS)
