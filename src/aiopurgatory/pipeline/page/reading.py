"""Reads the tables of the report, pooled by Spark to what fits a page: a few hundred steps, the busiest purgatories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..attempts import table
from ..tables import OUTCOMES, REPORT, WORK
from .plots import DAY, MINUTE, Axis, Floats, axis_of
from .promises import Limits, Promise, judged, promises

#: How many purgatories, the busiest first, have plots, and how many kinds have a colour. The tables have all.
SHOWN: Final = 12
KINDS: Final = 5
#: The most rows of a table on the page, and of changes.
ROWS: Final = 60
CHANGES: Final = 20
#: Percentiles cannot be added: of several kinds or minutes, the page shows the largest.
TIMES: Final = ("waited_p50_us", "waited_p99_us", "lateness_p99_us")
#: A first or last step covered by less than this share is pooled with its neighbour: both get one rate.
_LEAST_COVER: Final = 0.2


@dataclass(frozen=True)
class Load:
    """The load of one purgatory, by step of its axis; NaN where the journal covers nothing, or nothing ended."""

    rates: Mapping[str, Floats]
    #: Operations waiting at once: the mean of each kind, and of the others together.
    waiting: Mapping[str, Floats]
    peak: Floats
    #: Whether the peak is exact. By the minute it is the sum of the kinds' peaks, perhaps of different seconds.
    peak_exact: bool
    #: By step of minutes at least.
    times: Mapping[str, Floats]


@dataclass(frozen=True)
class Found:
    """What the page shows."""

    promises: Sequence[Promise]
    #: Sums of all operations, and of each shown purgatory.
    everything: Any
    totals: Mapping[str, Any]
    #: Rows of the small tables, by name.
    rows: Mapping[str, Sequence[Any]]
    #: Time axes: of the load, and of percentiles and lost rows, with steps of a minute at least.
    axis: Axis
    coarse: Axis
    loads: Mapping[str, Load]
    #: Rows dropped and quarantined per step, and the days of those with an unknown minute.
    lost: Mapping[str, Floats]
    lost_days: Sequence[float]


def read(spark: SparkSession, out: str, limits: Limits) -> Found:
    """Read the report in the folder *out*."""
    tables = {name: table(spark, out, name) for name in REPORT}
    minutes, days, lost = (tables[name] for name in ("minutes", "days", "lost"))
    seconds = by_second(tables["seconds"])
    first = _collected(
        {
            "totals": busiest(days, SHOWN),
            "promises": judged(minutes, lost, limits),
            "minutes": bounds(minutes),
            "seconds": bounds(seconds),
            "changes": latest(tables["changes"]),
            "settings": tables["settings"].orderBy("purgatory", "tick_s").limit(ROWS),
            "lost": reasons(lost),
        }
    )
    everything, *shown = first["totals"] or [SimpleNamespace(purgatory=None, operations=0.0, dates=[])]
    totals = {each.purgatory: each for each in shown}
    by_seconds = first["seconds"][0].first is not None
    axis = axis_of(*vars(first["seconds" if by_seconds else "minutes"][0]).values(), by_second=by_seconds)
    coarse = replace(axis, step=max(axis.step, MINUTE))
    names = [*totals]
    own = {name: rows.where(F.col("purgatory").isin(names)) for name, rows in tables.items() if name != "lost"}
    rows = seconds.where(F.col("purgatory").isin(names)) if by_seconds else own["minutes"]
    later = _collected(
        {
            "steps": steps(rows, axis),
            "waiting": waiting(rows, colours(own["days"]), axis),
            "coarse": steps(own["minutes"], coarse),
            "lost_steps": lost_steps(lost, coarse),
            "days": largest(own["days"]),
            "hot_keys": own["hot_keys"].orderBy("purgatory", "place"),
            "work": own["work"].groupBy("purgatory").agg(*(F.sum(name).alias(name) for name in WORK)),
        }
    )
    lost_rows = [each for each in later["lost_steps"] if each.step is not None]
    return Found(
        promises=promises(map(vars, first["promises"]), limits),
        everything=everything,
        totals=totals,
        rows={name: (first | later)[name] for name in ("changes", "settings", "lost", "days", "hot_keys", "work")},
        axis=axis,
        coarse=coarse,
        loads={name: _load(axis, coarse, later, total, by_seconds) for name, total in totals.items()},
        lost={
            name: coarse.dense([each for each in lost_rows if each.dropped == dropped], "rows", 0.0)
            for name, dropped in (("dropped", True), ("quarantined", False))
        },
        lost_days=[float(each.day * DAY) for each in later["lost_steps"] if each.step is None and each.day is not None],
    )


def _collected(frames: Mapping[str, DataFrame]) -> dict[str, list[Any]]:
    """Collect small tables, a few at once: planning them takes longer than running them."""
    with ThreadPoolExecutor(4) as pool:
        tables = pool.map(lambda frame: frame.toArrow(), frames.values())
        return {name: records(rows) for name, rows in zip(frames, tables, strict=True)}


def records(rows: pa.Table) -> list[SimpleNamespace]:
    """Return the rows of a small table. Unknown floats are NaN."""
    names = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    return [SimpleNamespace(**row | {name: np.nan for name in names if row[name] is None}) for row in rows.to_pylist()]


# DataFrame -> DataFrame


def busiest(days: DataFrame, number: int) -> DataFrame:
    """Days -> the sums and dates of all purgatories, whose name is null, and of the *number* busiest."""
    by_date = days.groupBy("purgatory", "date").agg(
        F.max("covered_s").alias("covered_s"), *(F.sum(name).alias(name) for name in ("operations", *OUTCOMES))
    )
    sums = [F.sum(name).alias(name) for name in ("covered_s", "operations", *OUTCOMES)]
    dates = F.collect_set(F.unix_date("date")).alias("dates")
    names = F.grouping("purgatory").alias("is_all"), F.count_distinct("purgatory").alias("purgatories")
    summed = by_date.rollup("purgatory").agg(*sums, dates, *names)
    return summed.orderBy(F.desc("is_all"), F.desc("operations"), "purgatory").limit(number + 1)


def bounds(rows: DataFrame) -> DataFrame:
    """Minutes -> the first and the last one, in seconds since 1970; null if there is none."""
    at = F.unix_seconds("minute")
    return rows.agg(F.min(at).alias("first"), F.max(at).alias("last"))


def by_second(seconds: DataFrame) -> DataFrame:
    """Seconds -> the same in the columns of minutes."""
    nothing = [F.lit(None).cast("double").alias(name) for name in TIMES]
    pending = [F.col("pending").alias(name) for name in ("pending_mean", "pending_peak")]
    at = F.col("second").alias("minute"), F.lit(1.0).alias("covered_s")
    return seconds.select("purgatory", "kind", *at, *OUTCOMES, *pending, *nothing)


def steps(minutes: DataFrame, axis: Axis) -> DataFrame:
    """Minutes -> the load of each purgatory by step of *axis*, all of its kinds together."""
    pooled = minutes.groupBy("purgatory", "minute").agg(
        *(F.sum(name).alias(name) for name in OUTCOMES),
        F.sum("pending_peak").alias("peak"),
        F.max(_covered()).alias("covered_s"),
        *(F.max(name).alias(name) for name in TIMES),
    )
    at = F.unix_seconds("minute")
    return pooled.groupBy("purgatory", _step(axis)).agg(
        *(F.sum(name).alias(name) for name in (*OUTCOMES, "covered_s")),
        *(F.max(name).alias(name) for name in ("peak", *TIMES)),
        *(F.count("*").cast("double").alias("minutes"), F.min(at).alias("first"), F.max(at).alias("last")),
    )


def waiting(minutes: DataFrame, kinds: DataFrame, axis: Axis) -> DataFrame:
    """Minutes -> how long operations waited by step, in seconds, by kinds with a colour of their own and the others."""
    held = F.sum(F.col("pending_mean") * _covered()).alias("held")
    own = minutes.join(F.broadcast(kinds), ["purgatory", "kind"], "inner")
    return own.groupBy("purgatory", "place", "label", _step(axis)).agg(held)


def colours(days: DataFrame) -> DataFrame:
    """Days -> purgatory, kind, place, label: the busiest kinds have their own, the others share one."""
    whole = Window.partitionBy("purgatory")
    ranked = days.groupBy("purgatory", "kind").agg(F.sum("operations").alias("operations"))
    place = F.row_number().over(whole.orderBy(F.desc("operations"), "kind")) - 1
    ranked = ranked.withColumn("place", place).withColumn("kinds", F.count("*").over(whole))
    alone = (F.col("place") < KINDS) | (F.col("kinds") <= KINDS + 1)
    others = F.concat(F.col("kinds") - KINDS, F.lit(" other kinds"))
    label = F.when(alone, F.col("kind")).otherwise(others).alias("label")
    return ranked.select("purgatory", "kind", F.least("place", F.lit(KINDS)).alias("place"), label)


def latest(changes: DataFrame) -> DataFrame:
    """Changes -> the largest of the newest day. One of 0 is among them if there are no others."""
    newest = changes.agg(F.max("date").alias("date"))
    size = F.abs(F.col("change"))
    order = F.desc(size), "purgatory", "kind", "measure"
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


def lost_steps(lost: DataFrame, axis: Axis) -> DataFrame:
    """Lost rows -> their sums by step; step is null where the minute is not known."""
    dropped = (F.col("what") == "dropped").alias("dropped")
    day = F.when(F.col("minute").isNull(), F.unix_date("date")).alias("day")
    sums = lost.groupBy(dropped, _step(axis), day).agg(F.sum("rows").cast("double").alias("rows"))
    return sums.where(F.col("step").isNull() | F.col("step").between(0, axis.count - 1))


def _step(axis: Axis) -> Column:
    return F.expr(f"CAST(unix_seconds(minute) div {axis.step} - {axis.first} AS INT) AS step")


def _covered() -> Column:
    """The seconds covered of a minute: all of it where the table does not say."""
    return F.when(F.col("covered_s") > 0, F.col("covered_s")).otherwise(float(MINUTE))


# On the driver


def _load(axis: Axis, coarse: Axis, rows: Mapping[str, Sequence[Any]], total: Any, by_seconds: bool) -> Load:
    own, minutes, held = (
        [each for each in rows[name] if each.purgatory == total.purgatory] for name in ("steps", "coarse", "waiting")
    )
    cover = _cover(axis, own, total.dates, 1 if by_seconds else MINUTE)
    labels = dict(sorted({each.place: each.label for each in held}.items()))
    waits = {
        label: axis.dense([each for each in held if each.label == label], "held", 0.0) for label in labels.values()
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        waits = {label: np.where(cover > 0, values / cover, np.nan) for label, values in waits.items()}
    return Load(
        rates=_rates(axis, own, cover),
        waiting=waits,
        peak=np.where(cover > 0, axis.dense(own, "peak", 0.0), np.nan),
        peak_exact=by_seconds or len(labels) == 1,
        times={name: coarse.dense(minutes, name, np.nan) for name in TIMES},
    )


def _rates(axis: Axis, rows: Sequence[Any], cover: Floats) -> dict[str, Floats]:
    """Operations per second covered. A minute without a row counts as 0 on a day with rows; other days are gaps."""
    counts = np.array([axis.dense(rows, name, 0.0) for name in OUTCOMES])
    seen = np.flatnonzero(cover > 0)
    cover = cover.copy()
    for edge, inner in ((seen[:1], seen[1:2]), (seen[-1:], seen[-2:-1])):
        if len(inner) and cover[edge] < _LEAST_COVER * axis.step:
            counts[:, edge] = counts[:, inner] = counts[:, edge] + counts[:, inner]
            cover[edge] = cover[inner] = cover[edge] + cover[inner]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.where(cover > 0, counts / cover, np.nan)
    return dict(zip(OUTCOMES, rates, strict=True))


def _cover(axis: Axis, rows: Sequence[Any], dates: Iterable[int], unit: int) -> Floats:
    """Return the seconds covered of each step: those of minutes with rows, and all of each silent minute."""
    days = np.array(sorted(dates), np.float64) * DAY
    begin = np.maximum(days, min(each.first for each in rows))
    end = np.minimum(days + DAY, max(each.last for each in rows) + unit)
    edges = axis.edges
    within = np.minimum(end[:, None], edges[1:]) - np.maximum(begin[:, None], edges[:-1])
    silent = np.clip(within, 0, None).sum(axis=0) - axis.dense(rows, "minutes", 0.0) * unit
    return np.asarray(axis.dense(rows, "covered_s", 0.0) + np.clip(silent, 0, None), np.float64)
