"""Reads the tables of the report, pooled by Spark to what fits a page: a few hundred steps, the busiest purgatories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..attempts import table
from ..tables import OUTCOMES, REPORT, WORK
from .plots import DAY, MINUTE, Axis, Floats, axis_of
from .promises import Limits, Promise, judged, promises

#: How many purgatories, the busiest first, are shown. The tables have all.
SHOWN: Final = 12
#: The most rows of a table on the page, and of changes.
ROWS: Final = 60
CHANGES: Final = 20
#: Percentiles cannot be added: of several kinds or minutes, the page shows the largest.
TIMES: Final = ("waited_p50_us", "waited_p99_us", "lateness_p99_us")


@dataclass(frozen=True)
class Found:
    """What the page shows."""

    promises: Sequence[Promise]
    #: Sums of all operations, and of each shown purgatory.
    everything: Any
    totals: Mapping[str, Any]
    #: Rows of the small tables, by name.
    rows: Mapping[str, Sequence[Any]]
    #: Time axes: of the load, and of percentiles, with steps of a minute at least.
    axis: Axis
    coarse: Axis

    def curve(self, purgatory: str, name: str, missing: float = 0.0) -> Floats:
        """The column *name* of one purgatory by step; NaN on days without a row of it."""
        rows = [each for each in self.rows["steps"] if each.purgatory == purgatory]
        return np.where(self.cover(purgatory) > 0, self.axis.dense(rows, name, missing), np.nan)

    def cover(self, purgatory: str) -> Floats:
        """How many seconds of each step are covered: those from its first to its last row, on days with rows."""
        rows = [each for each in self.rows["steps"] if each.purgatory == purgatory]
        first, last = min(each.first for each in rows), max(each.last for each in rows)
        days = np.array(sorted(self.totals[purgatory].dates), np.float64)[:, None] * DAY
        low, high = np.maximum(days, first), np.minimum(days + DAY, last + min(self.axis.step, MINUTE))
        edges = self.axis.edges
        within = np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])
        return np.asarray(np.clip(within, 0, None).sum(axis=0), np.float64)

    def times(self, purgatory: str, name: str) -> Floats:
        """A percentile by step of *coarse*; NaN where nothing ended."""
        rows = [each for each in self.rows["coarse"] if each.purgatory == purgatory]
        return self.coarse.dense(rows, name, np.nan)


def read(spark: SparkSession, out: str, limits: Limits) -> Found:
    """Read the report in the folder *out*."""
    tables = {name: table(spark, out, name) for name in REPORT}
    minutes, days, lost = (tables[name] for name in ("minutes", "days", "lost"))
    seconds = by_second(tables["seconds"])
    first = _collected(
        totals=busiest(days, SHOWN),
        promises=judged(minutes, lost, limits),
        minutes=bounds(minutes),
        seconds=bounds(seconds),
        changes=latest(tables["changes"]),
        settings=tables["settings"].orderBy("purgatory", "tick_s").limit(ROWS),
        lost=reasons(lost),
    )
    everything, *shown = first["totals"] or [SimpleNamespace(purgatory=None, operations=0.0, dates=[], purgatories=0)]
    by_seconds = first["seconds"][0].first is not None
    axis = axis_of(*vars(first["seconds" if by_seconds else "minutes"][0]).values(), by_second=by_seconds)
    coarse = replace(axis, step=max(axis.step, MINUTE))
    names = [each.purgatory for each in shown]
    own = {name: rows.where(F.col("purgatory").isin(names)) for name, rows in tables.items() if name != "lost"}
    later = _collected(
        steps=steps(seconds.where(F.col("purgatory").isin(names)) if by_seconds else own["minutes"], axis),
        coarse=steps(own["minutes"], coarse),
        days=largest(own["days"]),
        hot_keys=own["hot_keys"].orderBy("purgatory", "place"),
        work=own["work"].groupBy("purgatory").agg(*(F.sum(name).alias(name) for name in WORK)),
    )
    totals = {each.purgatory: each for each in shown}
    return Found(promises(map(vars, first["promises"]), limits), everything, totals, first | later, axis, coarse)


def _collected(**frames: DataFrame) -> dict[str, list[Any]]:
    """Collect small tables, a few at once: planning them takes longer than running them."""
    with ThreadPoolExecutor(4) as pool:
        tables = pool.map(lambda frame: frame.toArrow(), frames.values())
        return {name: records(rows) for name, rows in zip(frames, tables, strict=True)}


def records(rows: pa.Table) -> list[SimpleNamespace]:
    """Return the rows of a small table."""
    return [SimpleNamespace(**row) for row in rows.to_pylist()]


def busiest(days: DataFrame, number: int) -> DataFrame:
    """Days -> the sums and dates of all purgatories, whose name is null, and of the *number* busiest."""
    counts = ("operations", *OUTCOMES)
    sums = F.max("covered_s").alias("covered_s"), *(F.sum(name).alias(name) for name in counts)
    by_date = days.groupBy("purgatory", "date").agg(*sums)
    summed = by_date.rollup("purgatory").agg(
        *(F.sum(name).alias(name) for name in ("covered_s", *counts)),
        F.collect_set(F.unix_date("date")).alias("dates"),
        *(F.grouping("purgatory").alias("is_all"), F.count_distinct("purgatory").alias("purgatories")),
    )
    return summed.orderBy(F.desc("is_all"), F.desc("operations"), "purgatory").limit(number + 1)


def bounds(rows: DataFrame) -> DataFrame:
    """Minutes -> the first and the last one, in seconds since 1970; null if there is none."""
    at = F.unix_seconds("minute")
    return rows.agg(F.min(at).alias("first"), F.max(at).alias("last"))


def by_second(seconds: DataFrame) -> DataFrame:
    """Seconds -> the same in the columns of minutes."""
    nothing = [F.lit(None).cast("double").alias(name) for name in TIMES]
    pending = [F.col("pending").alias(name) for name in ("pending_mean", "pending_peak")]
    return seconds.select("purgatory", F.col("second").alias("minute"), *OUTCOMES, *pending, *nothing)


def steps(minutes: DataFrame, axis: Axis) -> DataFrame:
    """Minutes -> the load of each purgatory by step of *axis*, all of its kinds together."""
    counts = *OUTCOMES, "pending_mean", "pending_peak"
    largest_of = [F.max(name).alias(name) for name in TIMES]
    pooled = minutes.groupBy("purgatory", "minute").agg(*(F.sum(name).alias(name) for name in counts), *largest_of)
    at = F.unix_seconds("minute")
    return pooled.groupBy("purgatory", F.expr(f"CAST({axis.number} AS INT) AS step")).agg(
        *(F.sum(name).alias(name) for name in OUTCOMES),
        *(F.avg("pending_mean").alias("pending_mean"), F.max("pending_peak").alias("pending_peak")),
        *(F.min(at).alias("first"), F.max(at).alias("last"), *largest_of),
    )


def latest(changes: DataFrame) -> DataFrame:
    """Changes -> the largest of the newest day. One of 0 is among them if there are no others."""
    newest = changes.agg(F.max("date").alias("date"))
    order = F.desc(F.abs("change")), "purgatory", "kind", "measure"
    return changes.join(F.broadcast(newest), "date", "left_semi").orderBy(*order).limit(CHANGES)


def largest(days: DataFrame) -> DataFrame:
    """Days -> those with the most operations of each purgatory, and the number of all of them."""
    whole = Window.partitionBy("purgatory")
    place = F.row_number().over(whole.orderBy(F.desc("operations"), "date", "kind"))
    counted = days.withColumn("place", place).withColumn("rows", F.count("*").over(whole))
    return counted.where(F.col("place") <= ROWS).orderBy("date", F.desc("operations"), "kind")


def reasons(lost: DataFrame) -> DataFrame:
    """Lost rows -> what, rows, and the first and the last time, to the minute or to the day."""
    when = F.coalesce(F.date_format("minute", "yyyy-MM-dd HH:mm"), F.col("date").cast("string"))
    found = lost.groupBy("what").agg(F.sum("rows").alias("rows"), F.min(when).alias("first"), F.max(when).alias("last"))
    return found.orderBy(F.col("what") != "dropped", F.desc("rows"), "what").limit(ROWS)
