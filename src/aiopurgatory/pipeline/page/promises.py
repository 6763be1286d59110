"""Promises: limits that each minute keeps or breaks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

#: A model expects the share of an average minute. The limit is MARGIN times that share, plus 0.01.
MARGIN: Final = 1.5
_ABOUT: Final = {
    "max_expired_share": "share of a purgatory's operations that may expire",
    "max_lateness_ms": "99 %% of expirations must be at most this late, in ms",
    "max_missed_share": "share of operations that may be completed only by the last try, at their deadline",
    "max_dropped_rows": "rows that all journals together may drop in a minute",
    "fewest": "do not judge a purgatory by minutes with fewer operations",
}

#: By promise: the attribute of Limits, which tells the unit of its values, too.
PROMISES: Final = {
    "share expired": "max_expired_share",
    "late p99": "max_lateness_ms",
    "missed triggers": "max_missed_share",
    "dropped rows": "max_dropped_rows",
}


@dataclass(frozen=True)
class Limits:
    """The promises for every minute.

    Attributes:
        max_expired_share: share of a purgatory's operations that may expire (default: 0.5).
        max_lateness_ms: the 99th percentile of lateness of expired operations (default: 100). No minute keeps a limit
            below the purgatory's tick.
        max_missed_share: share of a purgatory's operations that may be completed by the last try at their deadline
            (default: 0.001). Such an operation waited although its condition held.
        max_dropped_rows: rows per minute that all journals together may drop (default: 0).
        fewest: with fewer operations of a purgatory, a minute neither keeps nor breaks a promise (default: 100).
        expected_shares: by purgatory, the share that its model expects to expire (default: no model). The limit follows
            from it, unless max_expired_share is given.

    Raises: PurgatoryError: a limit is refused.
    """

    max_expired_share: float = 0.5
    max_lateness_ms: float = 100.0
    max_missed_share: float = 0.001
    max_dropped_rows: float = 0.0
    fewest: float = 100
    expected_shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _ABOUT:
            if not getattr(self, name) >= 0:
                raise PurgatoryError(f"{name} must be >= 0, got {getattr(self, name):g}")

    def of(self, promise: str, purgatory: str | None = None) -> float:
        """The limit of a *promise* of one purgatory."""
        given = float(getattr(self, PROMISES[promise]))
        is_given = promise != "share expired" or given != Limits.max_expired_share
        expected = None if is_given else self.expected_shares.get(purgatory or "")
        return given if expected is None else min(1.0, expected * MARGIN + 0.01)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    group = parser.add_argument_group("promises (limits that each minute keeps or breaks)")
    for name, about in _ABOUT.items():
        option, default = f"--{name.replace('_', '-')}", getattr(Limits, name)
        group.add_argument(option, type=float, default=default, help=f"{about} (default: {default:g})")


def limits_of(args: argparse.Namespace) -> Limits:
    """Return the limits on the command line."""
    return Limits(**{name: getattr(args, name) for name in _ABOUT})


def judged(minutes: DataFrame, lost: DataFrame, limits: Limits) -> DataFrame:
    """Minutes, lost rows -> the promises of each purgatory and of the fleet, whose name is null.

    The columns are purgatory, name, verdict, limit, and how many minutes were ``judged`` and ``broken``. ``now`` is the
    value of the last minute with enough operations, which begins ``at``; it is null where nothing expired. The verdict
    is of that minute: kept, broken, or unknown without one. ``since`` is the first minute with the same verdict; null:
    all minutes had it.
    """
    order = Window.partitionBy("purgatory", "name").orderBy("minute")
    rows = _values(minutes, limits).unionByName(_dropped(minutes, lost)).withColumn("limit", _limit(limits))
    bad = F.coalesce(F.col("value") > F.col("limit"), F.lit(False))  # nothing expired: nothing was late
    following = rows.withColumns({"bad": bad, "next": F.lead("minute").over(order)})
    is_known = F.col("minute").isNotNull()
    known = following.groupBy("purgatory", "name").agg(
        *(F.max("limit").alias("limit"), F.count_if(is_known).alias("judged")),
        *(F.count_if(is_known & F.col("bad")).alias("broken"), F.max_by("bad", "minute").alias("is_broken")),
        *(F.max_by("value", "minute").alias("now"), F.max("value").alias("worst"), F.max("minute").alias("at")),
        F.max(F.when(F.col("bad"), F.col("next"))).alias("after_bad"),
        F.max(F.when(~F.col("bad"), F.col("next"))).alias("after_good"),
    )
    verdict = F.when(F.col("judged") == 0, "unknown").when(F.col("is_broken"), "broken").otherwise("kept")
    since = F.when(F.col("is_broken"), F.col("after_good")).otherwise(F.col("after_bad"))
    columns = "purgatory", "name", verdict.alias("verdict"), "limit", "judged", "broken", "now", "worst", "at"
    return known.select(*columns, since.alias("since")).orderBy(F.asc_nulls_last("purgatory"), "name")


def _values(minutes: DataFrame, limits: Limits) -> DataFrame:
    """Minutes -> purgatory, name, minute, value; minute is null where there are too few operations."""
    pooled = minutes.groupBy("purgatory", "minute").agg(
        *(F.sum(name).alias(name) for name in ("operations", "expired", "missed_triggers")),
        (F.max("lateness_p99_us") / 1e3).alias("late"),
    )
    enough = (F.col("operations") >= limits.fewest) & (F.col("operations") > 0)
    values = "'share expired', expired / operations, 'missed triggers', missed_triggers / operations, 'late p99', late"
    rows = pooled.select("purgatory", enough.alias("enough"), "minute", F.expr(f"stack(3, {values}) AS (name, value)"))
    known = [F.when(F.col("enough"), F.col(name)).alias(name) for name in ("minute", "value")]
    return rows.select("purgatory", "name", *known)


def _dropped(minutes: DataFrame, lost: DataFrame) -> DataFrame:
    dropped = lost.where("what = 'dropped' AND minute IS NOT NULL").select("minute", F.col("rows").cast("double"))
    both = minutes.select("minute", F.lit(0.0).alias("rows")).unionByName(dropped)
    fleet = F.lit(None).cast("string").alias("purgatory"), F.lit("dropped rows").alias("name")
    return both.groupBy("minute").agg(F.sum("rows").alias("value")).select(*fleet, "minute", "value")


def _limit(limits: Limits) -> Column:
    """The limit of the promise in the column ``name``."""
    found = F.lit(None).cast("double")
    for name in PROMISES:
        found = F.when(F.col("name") == name, limits.of(name)).otherwise(found)
    for each in limits.expected_shares:
        own = (F.col("name") == "share expired") & (F.col("purgatory") == each)
        found = F.when(own, limits.of("share expired", each)).otherwise(found)
    return found


def headline(stand: Sequence[Any]) -> str:
    """Sum up rows of judged() in one sentence. It names broken promises, if they are few."""
    broken = [each for each in stand if each.verdict == "broken"]
    unknown = sum(each.verdict == "unknown" for each in stand)
    if unknown == len(stand):
        return "Too few operations to judge any promise"
    if not broken and not unknown:
        return "All promises kept"
    verdict = f"{len(broken)} of {len(stand)} promises broken" if broken else "No promise broken"
    if 0 < len(broken) <= 3:
        verdict += ": " + ", ".join(f"{each.name} of {each.purgatory or 'the fleet'}" for each in broken)
    return f"{verdict}; too few operations to judge {unknown} of {len(stand)}" if unknown else verdict
