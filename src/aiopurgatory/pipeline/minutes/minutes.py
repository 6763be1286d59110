"""What the fleet did, per minute: the tables from which the report and the stream are made.

All count with ``weight``: a row may stand for many operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..cleaning.journal_tables import MINUTE, OUTCOMES, SECOND, ended_us
from .percentiles import PERCENTILES, bucket, least, reached

KEYS: Final = ("purgatory", "kind")
#: What a row of activity is of, before its counts.
ACTIVITY_KEYS: Final = (*KEYS, "minute", "outcome", "waited", "lateness")
_LATENESS: Final = {"lateness_p50_us": 0.5, "lateness_p99_us": 0.99, "lateness_max_us": 1.0}
_WAITED: Final = {f"waited_{name}_us": share for name, share in PERCENTILES.items()}
MEASURES: Final = (
    "operations",
    *OUTCOMES,
    "missed_triggers",
    *(f"{name}_share" for name in OUTCOMES),
    *_WAITED,
    *_LATENESS,
)
WORK: Final = (
    "checks",
    "checks_without_effect",
    "purges",
    "purged",
    "cascaded",
    "wakeups",
    "undelivered",
    "refused",
    "dropped_rows",
)


def activity(operations: DataFrame) -> DataFrame:
    """Operations -> ACTIVITY_KEYS, operations, missed_triggers: a histogram of each minute in which they ended."""
    rows = operations.select(
        *KEYS,
        F.floor(ended_us() / MINUTE).alias("number"),
        "outcome",
        bucket(F.col("waited_us")).alias("waited"),
        bucket(F.col("lateness_us")).alias("lateness"),
        "weight",
        F.when(F.col("missed_trigger"), F.col("weight")).otherwise(0.0).alias("missed"),
    )
    counted = rows.groupBy(*KEYS, "number", "outcome", "waited", "lateness").agg(
        F.sum("weight").alias("operations"), F.sum("missed").alias("missed_triggers")
    )
    minute = F.timestamp_micros(F.col("number") * MINUTE).alias("minute")
    return counted.select(*KEYS, minute, "outcome", "waited", "lateness", "operations", "missed_triggers")


def measured(activity: DataFrame, by: Sequence[str]) -> DataFrame:
    """Activity -> *by*, MEASURES: one row for each of *by*."""
    rows = activity.select("*", reached(by, "waited").alias("w"), reached(by, "lateness").alias("l"))
    total = F.sum("operations")
    of = {name: F.sum(F.when(F.col("outcome") == name, F.col("operations")).otherwise(0.0)) for name in OUTCOMES}
    return rows.groupBy(*by).agg(
        total.alias("operations"),
        *(count.alias(name) for name, count in of.items()),
        F.sum("missed_triggers").alias("missed_triggers"),
        *((count / total).alias(f"{name}_share") for name, count in of.items()),
        *(least("waited", "w", share).alias(name) for name, share in _WAITED.items()),
        *(least("lateness", "l", share).alias(name) for name, share in _LATENESS.items()),
    )


def pending(operations: DataFrame, by: Sequence[str] = KEYS, *, step: int = SECOND) -> DataFrame:
    """Operations -> *by*, minute, pending_mean, pending_peak: how many were waiting, looked at every *step*.

    A sweep over starts and ends, exact at each look: waiting are those that were watched by then and had not ended.
    There is no row for a minute in which none was. What was still waiting when the journal ended is not in it.

    Args: step: in microseconds; divides a minute.
    """
    seen = operations.select(
        *by, _look(F.unix_micros("watched_at"), step).alias("start"), _look(ended_us(), step).alias("end"), "weight"
    )
    seen = seen.where("start < `end`")  # the others come and go between two looks: most do
    starts = F.struct(F.col("start").alias("look"), F.col("weight").alias("change"))
    ends = F.struct(F.col("end").alias("look"), (-F.col("weight")).alias("change"))
    changes = (
        seen.select(*by, F.inline(F.array(starts, ends))).groupBy(*by, "look").agg(F.sum("change").alias("change"))
    )
    order = Window.partitionBy(*by).orderBy("look")
    until = F.coalesce(F.lead("look").over(order), F.col("look") + step)
    level = F.round(F.sum("change").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)), 6)
    levels = changes.select(*by, "look", until.alias("until"), level.alias("level"))
    return _per_minute(levels.where("level <> 0"), by)


def _look(at: Column, step: int) -> Column:
    """The first look that sees what happened *at* a moment."""
    return F.ceil(at / step) * step


def _per_minute(levels: DataFrame, by: Sequence[str]) -> DataFrame:
    """*by*, look, until, level -> *by*, minute, pending_mean, pending_peak."""
    first, last = F.floor(F.col("look") / MINUTE), F.floor((F.col("until") - 1) / MINUTE)
    rows = levels.withColumn("number", F.explode(F.sequence(first, last)))
    start = F.col("number") * MINUTE
    overlap = F.least("until", start + MINUTE) - F.greatest("look", start)
    minutes = rows.groupBy(*by, "number").agg(
        (F.sum(F.col("level") * overlap) / MINUTE).alias("pending_mean"), F.max("level").alias("pending_peak")
    )
    return minutes.select(*by, F.timestamp_micros(start).alias("minute"), "pending_mean", "pending_peak")


def minutes(activity: DataFrame, pending: DataFrame) -> DataFrame:
    """Activity, pending -> date, purgatory, kind, minute, MEASURES, pending_mean, pending_peak."""
    by = ["minute", *KEYS]  # what differs most comes first: rows are sorted by it
    counts = [name for name in MEASURES if not name.endswith(("_us", "_share"))]
    rows = measured(activity, by).join(pending, by, "full").na.fill(0.0, [*counts, "pending_mean", "pending_peak"])
    return rows.select(F.to_date("minute").alias("date"), *KEYS, "minute", *MEASURES, "pending_mean", "pending_peak")


def work(statistics: DataFrame) -> DataFrame:
    """Statistics -> purgatory, minute, WORK: what was done in it by all instances, from counters that grow.

    One that is less than before is that of a purgatory opened anew under its name.
    """
    order = Window.partitionBy("purgatory", "instance").orderBy("at")
    before = {name: F.lag(name).over(order) for name in WORK}
    grown = [
        F.when(F.col(name) >= was, F.col(name) - was).otherwise(F.col(name)).alias(name) for name, was in before.items()
    ]
    rows = statistics.select("purgatory", F.date_trunc("minute", "at").alias("minute"), *grown)
    return rows.groupBy("purgatory", "minute").agg(*(F.sum(name).alias(name) for name in WORK))


def top_keys(operations: DataFrame, top: int) -> DataFrame:
    """Operations -> purgatory, key_hash, operations, share, keys_each, place: the *top* of each purgatory."""
    counted = operations.groupBy("purgatory", "key_hash").agg(
        F.sum("weight").alias("operations"), F.sum(F.col("weight") * F.col("key_count")).alias("watched")
    )
    everything = Window.partitionBy("purgatory")
    ranked = counted.select(
        "purgatory",
        "key_hash",
        "operations",
        (F.col("operations") / F.sum("operations").over(everything)).alias("share"),
        (F.col("watched") / F.col("operations")).alias("keys_each"),
        F.row_number().over(everything.orderBy(F.desc("operations"), "key_hash")).alias("place"),
    )
    return ranked.where(F.col("place") <= top)


def hot_keys(operations: DataFrame, top: DataFrame) -> DataFrame:
    """Operations, top keys -> the same keys, + key, fan_out_mean, fan_out_peak.

    Fan-out is how many were waiting under the key at once: so many one event has to try; the mean is over the minutes
    in which any were. A key is known by its hash, and by its name where the journal was told to keep it.
    """
    by = ["purgatory", "key_hash"]
    rows = operations.join(F.broadcast(top.select(*by)), by, "left_semi")
    names = rows.where("key IS NOT NULL").groupBy(*by).agg(F.min(F.substring("key", 1, 200)).alias("key"))
    waiting = pending(rows, by).groupBy(*by)
    fan_out = waiting.agg(F.avg("pending_mean").alias("fan_out_mean"), F.max("pending_peak").alias("fan_out_peak"))
    found = top.join(names, by, "left").join(fan_out, by, "left").na.fill(0.0, ["fan_out_mean", "fan_out_peak"])
    return found.select(
        "purgatory", "place", "key_hash", "key", "operations", "share", "keys_each", "fan_out_mean", "fan_out_peak"
    )
