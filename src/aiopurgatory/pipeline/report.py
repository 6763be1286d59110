"""Clean table -> what the fleet did: tables, and one page for people.

Per purgatory, kind and minute: how many operations ended and how, how long they waited, how late the expired ones were,
how many were waiting; the keys that most of them watched, the work of the purgatories; and what changed since the day
before, largest first.

  IN/{operations,statistics}/  ->  OUT/{minutes,days,changes,hot_keys,work}/*.parquet
                                   OUT/report.html, which needs nothing beside it

Percentiles are within 2 %. Rows that stand for many operations (sampled) count as many.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Final

from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .cleaning.journal_tables import OPERATIONS, STATISTICS, between, read_clean
from .minutes.minutes import KEYS, MEASURES, activity, hot_keys, measured, minutes, pending, top_keys, work
from .spark import folders
from .spark.session import session

TABLES: Final = ("minutes", "days", "changes", "hot_keys", "work")
TOP: Final = 20
_ONE_DAY: Final = timedelta(days=1)
# In these a change matters; of a handful of operations none does.
_COMPARED: Final = (
    "operations",
    "expired_share",
    "failed_share",
    "cancelled_share",
    "missed_triggers",
    "waited_p50_us",
    "waited_p99_us",
    "lateness_p99_us",
    "pending_peak",
)
FEWEST_COMPARED: Final = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("clean", help="folder that ingest has made")
    parser.add_argument("out", help="folder of the report")
    parser.add_argument("--first", type=date.fromisoformat, help="first day, as 2026-11-21 (default: all)")
    parser.add_argument("--last", type=date.fromisoformat, help="last day (default: all)")
    parser.add_argument("--top", type=int, default=TOP, help=f"hot keys of each purgatory (default: {TOP})")


def run(args: argparse.Namespace) -> None:
    """Make the report, and say where the page lies."""
    with session("report", scratch=args.out, master=args.master, memory=args.memory) as spark:
        report(spark, args.clean, args.out, first=args.first, last=args.last, top=args.top)
    print(f"{args.out}/report.html")


def report(
    spark: SparkSession,
    clean: str,
    out: str,
    *,
    first: date | None = None,
    last: date | None = None,
    top: int = TOP,
) -> None:
    """Make TABLES and the page in *out*, of the days from *first* to *last*.

    Raises: PurgatoryError: there is no clean table.
    """
    from .page.page import page  # it needs matplotlib, which machines that only stream need not have

    # The day before, to compare with; and of the day after what was waiting at midnight.
    wide = {"first": first and first - _ONE_DAY, "last": last and last + _ONE_DAY}
    around = read_clean(spark, clean, OPERATIONS, **wide)
    asked = between(F.col("date"), first, last)
    operations = around.where(asked)
    # Kept by minute: what is asked of a minute needs no other shuffle.
    counts = activity(around).repartition("minute", *KEYS).persist(StorageLevel.MEMORY_AND_DISK)
    made = minutes(counts, pending(around)).persist(StorageLevel.MEMORY_AND_DISK)
    by_day = days(counts, made).persist(StorageLevel.MEMORY_AND_DISK)
    keys = top_keys(operations, top).persist(StorageLevel.MEMORY_AND_DISK)

    def by_minute() -> None:
        _save(made.where(asked), f"{out}/minutes", *KEYS, "minute")
        _save(by_day.where(asked), f"{out}/days", "date", *KEYS)
        largest = (F.desc("date"), F.desc(F.abs("change")), *KEYS, "measure")
        _save(changes(by_day).where(asked), f"{out}/changes", *largest)

    def by_key() -> None:
        _save(hot_keys(operations, keys), f"{out}/hot_keys", "purgatory", "place")

    def by_snapshot() -> None:
        if folders.exists(spark, f"{clean}/{STATISTICS.name}"):
            done = work(read_clean(spark, clean, STATISTICS, **wide))
            _save(done.where(between(F.to_date("minute"), first, last)), f"{out}/work", "purgatory", "minute")
        else:
            folders.remove(spark, f"{out}/work")

    try:
        # Side by side: while one is planned, the other runs.
        with ThreadPoolExecutor(2) as pool:
            within = inheritable_thread_target(spark)
            for running in [pool.submit(within(make)) for make in (by_minute, by_key, by_snapshot)]:
                running.result()
    finally:
        for kept in (counts, made, by_day, keys):
            kept.unpersist()
    folders.write(spark, f"{out}/report.html", page(spark, out))


def days(activity: DataFrame, minutes: DataFrame) -> DataFrame:
    """Activity, minutes -> date, purgatory, kind, MEASURES, pending_mean, pending_peak."""
    by = ["date", *KEYS]
    waiting = minutes.groupBy(*by).agg(
        F.avg("pending_mean").alias("pending_mean"), F.max("pending_peak").alias("pending_peak")
    )
    rows = activity.groupBy(F.to_date("minute").alias("date"), *KEYS, "outcome", "waited", "lateness").agg(
        F.sum("operations").alias("operations"), F.sum("missed_triggers").alias("missed_triggers")
    )
    return measured(rows, by).join(waiting, by, "left").select(*by, *MEASURES, "pending_mean", "pending_peak")


def changes(days: DataFrame) -> DataFrame:
    """Days -> date, purgatory, kind, measure, before, now, change: against the day before, where that is there, too.

    ``change`` is (now - before) / the larger of both: from -1, gone, to 1, new.
    """
    by = ["date", *KEYS]
    seen = days.select(*by, *_COMPARED)
    before = seen.select(
        F.date_add("date", 1).alias("date"), *KEYS, *(F.col(m).alias(f"{m}_before") for m in _COMPARED)
    )
    dates = seen.select("date").intersect(before.select("date"))
    both = seen.join(before, by, "full").join(dates, ["date"], "left_semi").na.fill(0.0)
    enough = both.where(F.greatest("operations", "operations_before") >= FEWEST_COMPARED)
    pairs = [
        F.struct(F.lit(m).alias("measure"), F.col(f"{m}_before").alias("before"), F.col(m).alias("now"))
        for m in _COMPARED
    ]
    rows = enough.select(*by, F.inline(F.array(*pairs))).where("now <> before")
    change = (F.col("now") - F.col("before")) / F.greatest(F.abs("now"), F.abs("before"))
    return rows.select(*by, "measure", "before", "now", change.alias("change"))


def _save(table: DataFrame, path: str, *order: str | Column) -> None:
    """All of it, in place of what is there, in one file: nothing here grows with the number of operations."""
    rows = table.repartition(1).sortWithinPartitions(*order)
    rows.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(path)
