"""Sums -> the tables of the report, as described in tables.py. Each is a function of DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .sums import middle, named, total
from .tables import COUNTERS, DAY, KEYS, LATENESS, LEVELS, MEASURES, OF_PROCESS, OUTCOMES, SECOND, WAITED

_COUNTS: Final = ("operations", *OUTCOMES, "missed_triggers")
#: The measures to compare with the day before, for kinds with at least FEWEST operations.
COMPARED: Final = (
    *("operations", "expired_share", "failed_share", "cancelled_share", "missed_triggers"),
    *("waited_p50_us", "waited_p99_us", "lateness_p99_us", "pending_peak"),
)
_FEWEST: Final = 100
#: Shorter timeouts are parts of the usual one.
_DIVISORS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def touched(rows: DataFrame, numbers: Sequence[int], known: str) -> DataFrame:
    """Touched days -> by day: which batches have it, the newest number, and whether one is *known*.

    Args: numbers: of the batches that count, in order. known: the name of a batch.
    """
    having = F.array_min(F.filter(F.array(*map(F.lit, numbers)), lambda each: each >= F.col("number")))
    is_known = F.bool_or(F.col("attempt") == known).alias("is_known")
    by_day = rows.withColumn("having", having).groupBy("date")
    return by_day.agg(F.collect_set("having").alias("having"), F.max("number").alias("newest"), is_known)


def minutes(activity: DataFrame, waiting: DataFrame, kinds: DataFrame, spans: DataFrame) -> DataFrame:
    """How operations ended in each minute, and how many were waiting."""
    both = measured(activity, "minute").join(_by_minute(waiting), ["minute", "series"], "full")
    dated = both.fillna(0.0, [*_COUNTS, "pending_peak", "held"]).withColumn("date", _date_of("minute div 1440"))
    begin = F.col("minute").cast("bigint") * 60
    rows = named(dated, kinds).join(F.broadcast(spans), ["date", "purgatory"], "left")
    rows = rows.withColumns({"covered_s": _covered_s(begin, 60), "minute": F.timestamp_seconds(begin)})
    # In the first minute, some operations waited before it is covered.
    mean = F.least(F.col("held") / F.col("covered_s"), "pending_peak")
    return rows.withColumn("pending_mean", mean).select("date", *KEYS, "minute", *MEASURES)


def days(daily: DataFrame, minutes: DataFrame, kinds: DataFrame, spans: DataFrame) -> DataFrame:
    """The same for each day with an operation that ended. Its mean is over the minutes that have a row."""
    by = ["date", *KEYS]
    held = F.sum(F.col("pending_mean") * F.col("covered_s")) / F.sum("covered_s")
    waited = minutes.groupBy(*by).agg(held.alias("pending_mean"), F.max("pending_peak").alias("pending_peak"))
    begin = F.unix_date("date").cast("bigint") * (DAY // SECOND)
    rows = named(measured(daily, "date"), kinds).join(F.broadcast(spans), ["date", "purgatory"], "left")
    rows = rows.withColumn("covered_s", _covered_s(begin, DAY // SECOND))
    return rows.join(waited, by, "left").select(*by, *MEASURES)


def measured(histogram: DataFrame, time: str) -> DataFrame:
    """Return counts, shares and percentiles for each *time* and series. They need one sort of both histograms."""
    buckets = F.expr("stack(2, 0Y, waited, 1Y, lateness) AS (what, bucket)")
    both = histogram.select(time, "series", "outcome", "missed_trigger", "operations", buckets)
    both = both.where("bucket IS NOT NULL").repartition(time, "series")
    group = Window.partitionBy(time, "series", "what").orderBy("bucket")
    upto = F.sum("operations").over(group.rowsBetween(Window.unboundedPreceding, 0))
    every = F.sum("operations").over(group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    waited = F.col("what") == 0
    of = {name: waited & (F.col("outcome") == place) for place, name in enumerate(OUTCOMES)}
    counts = {"operations": waited} | of | {"missed_triggers": waited & F.col("missed_trigger")}
    found = (
        both.withColumn("reached", upto / every)
        .groupBy(time, "series")
        .agg(
            *(F.sum(F.when(which, F.col("operations")).otherwise(0.0)).alias(name) for name, which in counts.items()),
            *(_least(0, share).alias(name) for name, share in WAITED.items()),
            *(_least(1, share).alias(name) for name, share in LATENESS.items()),
        )
    )
    return found.select("*", *((F.col(name) / F.col("operations")).alias(f"{name}_share") for name in OUTCOMES))


def _least(what: int, share: float) -> Column:
    """Return the smallest value that *share* of a histogram does not exceed. Sums of weights are not exact."""
    enough = (F.col("what") == what) & (F.col("reached") >= share - 1e-12)
    return middle(F.min(F.when(enough, F.col("bucket"))))


def spans(hours: DataFrame) -> DataFrame:
    """Return which part of each date the journal of a purgatory covers: date, purgatory, first_us, last_us.

    A day is covered from its first end to its last, and from or to midnight if the day beside it also has an end.
    """
    by_day = hours.groupBy(_date_of("hour div 24").alias("date"), "purgatory").agg(
        F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")
    )
    order = Window.partitionBy("purgatory").orderBy("date")
    begin = F.unix_date("date").cast("bigint") * DAY
    is_before = F.lag("date").over(order) == F.date_sub("date", 1)
    is_after = F.lead("date").over(order) == F.date_add("date", 1)
    return by_day.select(
        *("date", "purgatory", F.when(is_before, begin).otherwise(F.col("first_us")).alias("first_us")),
        F.when(is_after, begin + DAY).otherwise(F.col("last_us")).alias("last_us"),
    )


def levels(waiting: DataFrame) -> DataFrame:
    """Return how many operations waited from a ``second`` to the second ``until``, by date and series."""
    order = Window.partitionBy("date", "series").orderBy("second")
    level = F.round(F.sum("change").over(order.rowsBetween(Window.unboundedPreceding, 0)), 6).alias("level")
    # Of several changes in a second, only the last one's level lasts.
    every = waiting.select("date", "series", "second", level, F.lead("second").over(order).alias("until"))
    return every.where("level > 0 AND until > second")


def _by_minute(waiting: DataFrame) -> DataFrame:
    number = F.explode(F.expr("sequence(second div 60, (until - 1) div 60)")).alias("number")
    pieces = levels(waiting).select("*", number).withColumn("minute", F.col("number").cast("int"))
    held = F.expr("level * (least(until, number * 60 + 60) - greatest(second, number * 60))")
    return pieces.groupBy("minute", "series").agg(F.sum(held).alias("held"), F.max("level").alias("pending_peak"))


def _covered_s(begin: Column, length: int) -> Column:
    """Return the covered seconds of the stretch from the second *begin*, at least 1."""
    low = F.greatest(begin * SECOND, F.coalesce("first_us", F.lit(0)))
    high = F.least((begin + length) * SECOND, F.coalesce("last_us", F.lit(0)))
    return F.greatest((high - low) / SECOND, F.lit(1.0))


def seconds(waiting: DataFrame, ends: DataFrame, kinds: DataFrame) -> DataFrame:
    """How operations ended in each second, and how many were waiting at its beginning."""
    of = [F.when(F.col("outcome") == place, F.col("operations")).otherwise(0.0) for place in range(len(OUTCOMES))]
    counts = [F.sum(operations).alias(name) for name, operations in zip(OUTCOMES, of, strict=True)]
    ended = ends.groupBy("second", "series").agg(*counts)
    each = F.explode(F.expr("sequence(second, until - 1)")).alias("at")
    waited = levels(waiting).select("series", F.col("level").alias("pending"), each).withColumnRenamed("at", "second")
    both = ended.join(waited, ["second", "series"], "full").fillna(0.0, [*OUTCOMES, "pending"])
    rows = both.withColumn("date", _date_of(f"second div {DAY // SECOND}"))
    return named(rows, kinds).select("date", *KEYS, F.timestamp_seconds("second").alias("second"), *OUTCOMES, "pending")


def changes(days: DataFrame) -> DataFrame:
    """Compare the measures of each day with the day before, the largest change first."""
    by = ["date", *KEYS, "measure"]
    measures = F.expr(f"stack({len(COMPARED)}, {', '.join(f'{name!r}, {name}' for name in COMPARED)})")
    flat = days.select("date", *KEYS, "operations", measures.alias("measure", "now"))
    before = flat.select(
        *(F.date_add("date", 1).alias("date"), *KEYS, "measure"),
        *(F.col("now").alias("before"), F.col("operations").alias("had")),
    )
    dates = days.select("date").distinct()
    both_days = dates.join(dates.select(F.date_add("date", 1).alias("date")), "date", "left_semi")
    both = flat.join(before, by, "full").fillna(0.0).join(F.broadcast(both_days), "date", "left_semi")
    largest = F.nullif(F.greatest(F.abs("now"), F.abs("before")), F.lit(0.0))
    change = F.coalesce((F.col("now") - F.col("before")) / largest, F.lit(0.0))
    found = both.where(F.greatest("operations", "had") >= _FEWEST).select(*by, "before", "now", change.alias("change"))
    return found.orderBy(F.desc("date"), F.desc(F.abs("change")), *KEYS, "measure")


def hot_keys(keys: DataFrame, names: DataFrame, top: int = 20) -> DataFrame:
    """Return the keys of each purgatory under which most operations waited."""
    whole = Window.partitionBy("purgatory")
    place = F.row_number().over(whole.orderBy(F.desc("operations"), "key_hash")).alias("place")
    share = (F.col("operations") / F.sum("operations").over(whole)).alias("share")
    each = (F.col("watched") / F.col("operations")).alias("keys_each")
    first = total(keys).select("purgatory", place, "key_hash", "operations", share, each).where(F.col("place") <= top)
    found = first.join(total(names), ["purgatory", "key_hash"], "left").orderBy("purgatory", "place")
    return found.select("purgatory", "place", "key_hash", "key", "operations", "share", "keys_each")


def work(snapshots: DataFrame) -> DataFrame:
    """Return the growth of the counters of a purgatory by minute, and its largest levels.

    The first snapshot of an instance only sets the starting values. The journal takes it when a purgatory is opened.
    Each purgatory of an instance reports the counters of the process: here they are of the first one that did.
    """
    once = snapshots.dropDuplicates(["purgatory", "instance", "at"])
    grown = _grown(_grown(once, COUNTERS, "purgatory", "instance"), OF_PROCESS, "instance")
    counts = [F.sum(name).alias(name) for name in (*COUNTERS, *OF_PROCESS)]
    levels = [F.max(name).alias(name) for name in LEVELS]
    minute = F.date_trunc("minute", "at").alias("minute")
    of_instances = grown.groupBy("purgatory", "instance", minute).agg(*counts, *levels)
    names = (*COUNTERS, *OF_PROCESS, *LEVELS)
    return of_instances.groupBy("purgatory", "minute").agg(*(F.sum(name).alias(name) for name in names))


def timeouts(daily: DataFrame, hours: DataFrame, kinds: DataFrame) -> DataFrame:
    """For the usual timeout of each kind, and shorter ones: the share that would expire, and the mean wait.

    A timeout of 0 asks, and never waits: it is not the usual one.
    """
    bins = hours.where("timeout > 0").groupBy("series", "timeout")
    means = bins.agg(F.sum("operations").alias("number"), F.expr("sum(total) / sum(operations) AS mean_us"))
    usual = means.groupBy("series").agg(F.max_by("mean_us", "number").alias("usual_us"))
    tried = usual.select("series", "usual_us", F.explode(F.array(*map(F.lit, _DIVISORS))).alias("divisor"))
    waits = daily.select("series", "outcome", "operations", middle(F.col("waited")).alias("waited_us"))
    both = waits.join(F.broadcast(tried), "series").withColumn("timeout_us", F.col("usual_us") / F.col("divisor"))
    expires = f"outcome = {OUTCOMES.index('expired')} OR divisor > 1 AND waited_us > timeout_us"
    found = both.groupBy("series", "timeout_us", F.expr("divisor = 1 AS is_in_use")).agg(
        F.sum("operations").alias("operations"),
        F.expr(f"sum(IF({expires}, operations, 0D)) / sum(operations) AS expired_share"),
        F.expr("sum(operations * least(waited_us, timeout_us)) / sum(operations) AS waited_mean_us"),
    )
    return named(found, kinds).orderBy(*KEYS, F.desc("timeout_us"))


def lost(losses: DataFrame) -> DataFrame:
    """Count the rows that ingest read and that are in no sum."""
    return losses.groupBy("date", "what").agg(F.sum("rows").alias("rows")).orderBy("date", "what")


def missed(snapshots: DataFrame) -> DataFrame:
    """Sum the missed checks in the newest snapshots of all instances, by the class and the kind of key."""
    newest = snapshots.groupBy("purgatory", "instance").agg(F.max_by("missed_kinds", "at").alias("each"))
    rows = newest.select("purgatory", F.inline("each")).withColumnRenamed("key", "key_kind")
    summed = rows.groupBy(*KEYS, "key_kind").agg(F.sum("operations").alias("operations"))
    return summed.where("operations > 0 AND kind IS NOT NULL AND key_kind IS NOT NULL").orderBy(*KEYS, "key_kind")


def settings(snapshots: DataFrame) -> DataFrame:
    """Count the instances of each purgatory by their settings in their newest snapshot."""
    names = ("tick_ns", "wheel_size", "purge_interval")
    newest = snapshots.groupBy("purgatory", "instance").agg(F.max_by(F.struct(*names), "at").alias("in_use"))
    counts = newest.select("purgatory", "in_use.*").where("tick_ns IS NOT NULL").groupBy("purgatory", *names)
    found = counts.agg(F.count(F.lit(1)).alias("instances")).withColumn("tick_s", F.col("tick_ns") / 1e9)
    columns = ("purgatory", "instances", "tick_s", "wheel_size", "purge_interval")
    return found.select(*columns).orderBy(*columns)


def _grown(snapshots: DataFrame, counters: Sequence[str], *by: str) -> DataFrame:
    """Replace *counters* by their growth since the snapshot before, of the same day or the day before.

    A counter that fell was reset: all of it is growth.
    """
    before = F.lag(F.struct("at", *counters)).over(Window.partitionBy(*by).orderBy("at", "purgatory"))
    both = snapshots.withColumn("before", before)
    known = F.date_diff("at", "before.at") <= 1
    grew = {name: F.when(known, F.col(name) - F.col(f"before.{name}")) for name in counters}
    of = {name: F.coalesce(F.when(n < 0, F.col(name)).otherwise(n), F.lit(0)) for name, n in grew.items()}
    return both.withColumns(of).drop("before")


def _date_of(number: str) -> Column:
    return F.expr(f"date_from_unix_date(CAST({number} AS INT))")
