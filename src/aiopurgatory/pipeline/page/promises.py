"""Promises: limits that each minute keeps or breaks."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import inf
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

#: More than usual expire above MARGIN times the mean share of all judged minutes, plus 0.01.
MARGIN: Final = 1.5
#: Fewer that expire in a minute are not more than usual: that is chance.
CHANCE: Final = 20
_ABOUT: Final = {
    "max_expired_share": "share of a purgatory's operations that may expire",
    "max_lateness_ms": "99 %% of expirations must be at most this late, in ms",
    "max_missed_share": "share of operations that may be completed only by the last try",
    "max_dropped_rows": "rows that all journals together may drop in a minute",
    "fewest": "do not judge a purgatory by minutes with fewer operations",
}
#: By promise: the attribute of Limits, which also tells the unit of its values.
PROMISES: Final = {
    "share expired": "max_expired_share",
    "more expired than usual": "usual_share",
    "late p99": "max_lateness_ms",
    "missed triggers": "max_missed_share",
    "dropped rows": "max_dropped_rows",
}


@dataclass(frozen=True)
class Limits:
    """The promises for every minute.

    Attributes:
        max_expired_share: share of a purgatory's operations that may expire (default: 0.5). Raise it for long polls of
            what seldom changes.
        max_lateness_ms: the 99th percentile of lateness of expired operations (default: 100). No minute keeps a limit
            below the purgatory's tick.
        max_missed_share: share of a purgatory's operations that may be completed by the last try at their deadline
            (default: 0.001). Such an operation waited although its condition held.
        max_dropped_rows: rows per minute that all journals together may drop (default: 0).
        fewest: with fewer operations of a purgatory, a minute neither keeps nor breaks a promise (default: 100).

    Raises: PurgatoryError: a limit is refused.
    """

    max_expired_share: float = 0.5
    max_lateness_ms: float = 100.0
    max_missed_share: float = 0.001
    max_dropped_rows: float = 0.0
    fewest: float = 100.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            most, rule = (1.0, "from 0 to 1") if name.endswith("_share") else (inf, ">= 0")
            if not 0.0 <= value <= most:
                raise PurgatoryError(f"{name} must be {rule}, got {value:g}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    group = parser.add_argument_group("promises (limits that each minute keeps or breaks)")
    for name, about in _ABOUT.items():
        about = f"{about} (default: {getattr(Limits, name):g})"
        group.add_argument(f"--{name.replace('_', '-')}", type=float, default=argparse.SUPPRESS, help=about)


def limits_of(args: argparse.Namespace) -> Limits:
    """Return the limits on the command line."""
    return Limits(**{name: value for name, value in vars(args).items() if name in _ABOUT})


def verdicts(minutes: DataFrame, work: DataFrame, limits: Limits) -> DataFrame:
    """Minutes, work -> the promises of each purgatory and of the fleet, whose name is null.

    Broken ones come first. The columns are purgatory, name, verdict, limit, and how many minutes were ``judged`` and
    ``broken``. ``now`` is the value of the last minute with enough operations, which begins ``at``; it is null where
    nothing expired. ``worst`` is the largest value, of the minute ``worst_at``, in which ``collector_us`` went to
    Python's garbage collector. The verdict is of the last minute: kept, broken, or unknown without one. ``since`` is
    the first minute with the same verdict; null: all minutes had it.
    """
    order = Window.partitionBy("purgatory", "name").orderBy("minute")
    rows = _values(minutes, limits).unionByName(_dropped(minutes, work, limits))
    bad = F.coalesce(F.col("value") > F.col("limit"), F.lit(False))  # nothing expired: nothing was late
    following = rows.withColumns({"bad": bad, "next": F.lead("minute").over(order)})
    is_known = F.col("minute").isNotNull()
    known = following.groupBy("purgatory", "name").agg(
        *(F.max("limit").alias("limit"), F.count_if(is_known).alias("judged")),
        *(F.count_if(is_known & F.col("bad")).alias("broken"), F.max_by("bad", "minute").alias("is_broken")),
        *(F.max_by("value", "minute").alias("now"), F.max("minute").alias("at")),
        *(F.max("value").alias("worst"), F.max_by("minute", "value").alias("worst_at")),
        F.max(F.when(F.col("bad"), F.col("next"))).alias("after_bad"),
        F.max(F.when(~F.col("bad"), F.col("next"))).alias("after_good"),
    )
    verdict = F.when(F.col("judged") == 0, "unknown").when(F.col("is_broken"), "broken").otherwise("kept")
    since = F.when(F.col("is_broken"), F.col("after_good")).otherwise(F.col("after_bad"))
    collector = work.groupBy(F.col("minute").alias("worst_at")).agg(F.sum("collector_us").alias("collector_us"))
    found = known.withColumns({"verdict": verdict, "since": since}).drop("is_broken", "after_bad", "after_good")
    return found.join(collector, "worst_at", "left").orderBy("verdict", F.asc_nulls_last("purgatory"), "name")


def _values(minutes: DataFrame, limits: Limits) -> DataFrame:
    """Minutes -> purgatory, name, minute, value, limit. Where operations are too few, minute and value are null."""
    pooled = minutes.groupBy("purgatory", "minute").agg(
        *(F.sum(name).alias(name) for name in ("operations", "expired", "missed_triggers")),
        (F.max("lateness_p99_us") / 1e3).alias("late"),
    )
    enough = (F.col("operations") >= limits.fewest) & (F.col("operations") > 0)
    ended = F.nullif(F.col("operations"), F.lit(0.0))  # in a silent minute, operations only wait
    expired = F.col("expired") / ended
    usual = F.avg(F.when(enough, expired)).over(Window.partitionBy("purgatory"))
    promises = F.stack(
        *(F.lit(4), F.lit("share expired"), expired, F.lit(limits.max_expired_share)),
        *(F.lit("more expired than usual"), F.when(F.col("expired") >= CHANCE, expired), F.col("usual")),
        *(F.lit("missed triggers"), F.col("missed_triggers") / ended, F.lit(limits.max_missed_share)),
        *(F.lit("late p99"), F.col("late"), F.lit(limits.max_lateness_ms)),
    )
    limited = pooled.withColumns({"usual": F.least(F.lit(1.0), usual * MARGIN + 0.01), "enough": enough})
    rows = limited.select("purgatory", "enough", "minute", promises.alias("name", "value", "limit"))
    known = [F.when(F.col("enough"), F.col(name)).alias(name) for name in ("minute", "value")]
    return rows.select("purgatory", "name", *known, "limit")


def _dropped(minutes: DataFrame, work: DataFrame, limits: Limits) -> DataFrame:
    """The same of the rows that the journals of the fleet dropped."""
    dropped = work.where("dropped_rows > 0").select("minute", F.col("dropped_rows").cast("double").alias("rows"))
    both = minutes.select("minute", F.lit(0.0).alias("rows")).unionByName(dropped)
    fleet = F.lit(None).cast("string").alias("purgatory"), F.lit("dropped rows").alias("name")
    values = both.groupBy("minute").agg(F.sum("rows").alias("value"))
    return values.select(*fleet, "minute", "value", F.lit(limits.max_dropped_rows).alias("limit"))
