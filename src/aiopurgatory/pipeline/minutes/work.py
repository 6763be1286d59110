"""What purgatories did besides, from their counters, and the rows that journals could not keep."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

WORK: Final = ("checks", "checks_without_effect", "purges", "purged", "cascaded", "wakeups", "undelivered", "refused")
_SETTINGS: Final = ("tick_s", "wheel_size", "purge_interval")


def work(statistics: DataFrame) -> DataFrame:
    """Statistics -> purgatory, minute, WORK: what was done in it by all instances, from counters that grow.

    The first snapshot of an instance counts from nothing: its counters tell of all the time before. The journal takes
    one when a purgatory is opened. A counter that is less than before is that of a purgatory opened anew.
    """
    order = Window.partitionBy("purgatory", "instance").orderBy("at")
    grown = [_grown(F.col(name), order).alias(name) for name in WORK]
    rows = statistics.select("purgatory", F.date_trunc("minute", "at").alias("minute"), *grown)
    return rows.groupBy("purgatory", "minute").agg(*(F.sum(name).alias(name) for name in WORK)).na.fill(0)


def dropped(statistics: DataFrame) -> DataFrame:
    """Statistics -> minute, rows: those that journals could not keep. Each purgatory of an instance tells of all."""
    order = Window.partitionBy("instance").orderBy("at", "purgatory")
    rows = statistics.select(
        F.date_trunc("minute", "at").alias("minute"), _grown(F.col("dropped_rows"), order).alias("rows")
    )
    return rows.groupBy("minute").agg(F.sum("rows").alias("rows")).where("rows > 0")


def settings(statistics: DataFrame) -> DataFrame:
    """Statistics -> purgatory, instances, tick_s, wheel_size, purge_interval: by each instance's last snapshot."""
    last = Window.partitionBy("purgatory", "instance").orderBy(F.desc("at"))
    newest = statistics.withColumn("place", F.row_number().over(last)).where("place = 1 AND tick_ns IS NOT NULL")
    known = newest.withColumn("tick_s", F.col("tick_ns") / 1e9)
    counted = known.groupBy("purgatory", *_SETTINGS).agg(F.count(F.lit(1)).alias("instances"))
    return counted.select("purgatory", "instances", *_SETTINGS)


def _grown(counter: Column, order: WindowSpec) -> Column:
    before = F.lag(counter).over(order)
    return F.when(counter >= before, counter - before).when(before.isNotNull(), counter)
