"""Findings: what is wrong with a purgatory, as functions of DataFrames. Their words are in page.html."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..tables import KEYS
from .promises import Limits

#: Counters below this say nothing.
_FEWEST: Final = 100
#: In vain, or without effect, are most if they are more than this share.
_MOST: Final = 0.9
#: A key is coarse if so many operations wait under it, of which a check ends less than a tenth.
_MANY: Final = 20
#: A key is hot if more than this share of operations waits under it.
_HOT: Final = 0.4


def findings(tables: Mapping[str, DataFrame], limits: Limits) -> DataFrame:
    """Tables of the report -> a row per finding: ``what``, ``purgatory``, and its figures."""
    work, hot_keys, timeouts = (tables[name] for name in ("work", "hot_keys", "timeouts"))
    found = (
        growing(work, tables["minutes"], timeouts),
        *checks(work, hot_keys),
        hot(hot_keys),
        missed(tables["missed"], tables["days"], timeouts, limits),
        *mistimed(timeouts, limits),
    )
    both = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), found)
    return both.orderBy("what", "purgatory", "kind")


def growing(work: DataFrame, minutes: DataFrame, timeouts: DataFrame) -> DataFrame:
    """Purgatories in which ever more operations wait, although no more of them end.

    In each third of the journal more wait than in the one before, and a third is longer than any timeout.
    """
    ends = minutes.groupBy("purgatory", "minute").agg(F.sum(F.expr("completed + expired")).alias("ends"))
    longest = timeouts.where("is_in_use").groupBy("purgatory").agg((F.max("timeout_us") / 1e6).alias("longest"))
    third = F.ntile(3).over(Window.partitionBy("purgatory").orderBy("minute"))
    # A purgatory that has closed says 0.
    parts = work.where("pending > 0").withColumn("third", third).join(ends, ["purgatory", "minute"], "left")

    values = {"high": ("max(pending)", 1), "mid": ("min(pending)", 2), "low": ("min(pending)", 3)}
    values |= {"ends_first": ("avg(ends)", 1), "ends_last": ("avg(ends)", 3)}
    known = parts.groupBy("purgatory").agg(
        *(F.expr(f"{value} FILTER (WHERE third = {part})").alias(name) for name, (value, part) in values.items()),
        *(F.min_by("pending", "minute").alias("before"), F.max_by("pending", "minute").alias("now")),
        *(F.min("minute").alias("since"), F.max("minute").alias("at")),
        (F.max(F.unix_seconds("minute")) - F.min(F.unix_seconds("minute")) + 60).alias("seconds"),
    )
    load = "greatest(1, coalesce(ends_last, 0) / greatest(1, coalesce(ends_first, 0)))"
    grows = f"low > 1.5 * high * {load} + 100 AND mid >= before AND seconds / 3 > coalesce(longest, 0)"
    rows = known.join(longest, "purgatory", "left").where(grows)
    return rows.select(F.lit("leak").alias("what"), "purgatory", "before", "now", "since", "at")


def checks(work: DataFrame, hot_keys: DataFrame) -> list[DataFrame]:
    """Purgatories with coarse keys, with checks that do nothing, and with checks of a key of another type."""
    names = ("checks", "checks_without_effect", "checks_of_twins", "reads", "reads_in_vain", "completed")
    levels = (F.sum("watched_entries") / F.nullif(F.sum("keys"), F.lit(0))).alias("waiters")
    summed = work.groupBy("purgatory").agg(*(F.sum(name).alias(name) for name in names), levels)
    hottest = hot_keys.where("place = 1").select("purgatory", "key", "key_hash")
    some = F.nullif(F.col("checks") - F.col("checks_without_effect"), F.lit(0))
    each = summed.withColumn("served", F.col("completed") / some).join(hottest, "purgatory", "left")
    reads = f"reads >= {_FEWEST} AND reads_in_vain > {_MOST} * reads"
    coarse = f"({reads}) OR (checks >= {_FEWEST} AND waiters >= {_MANY} AND served < waiters / 10)"
    nothing = f"checks >= {_FEWEST} AND checks_without_effect > {_MOST} * checks"
    of = {"coarse keys": coarse, "checks without effect": nothing, "keys of another type": "checks_of_twins > 0"}
    return [each.where(rule).withColumn("what", F.lit(what)) for what, rule in of.items()]


def hot(hot_keys: DataFrame) -> DataFrame:
    """Keys under which a large share of operations waits, although there are others."""
    others = F.count(F.lit(1)).over(Window.partitionBy("purgatory")) > 1
    rows = hot_keys.withColumn("others", others).where(f"others AND place = 1 AND share > {_HOT}")
    return rows.select(F.lit("hot key").alias("what"), "purgatory", "key", "key_hash", "share", "operations")


def missed(missed: DataFrame, days: DataFrame, timeouts: DataFrame, limits: Limits) -> DataFrame:
    """Classes that missed too many checks on a day, by the kind of key to check."""
    used = timeouts.where("is_in_use").select(*KEYS, "timeout_us")
    broken = missed.join(days.where(f"missed_triggers > {limits.max_missed_share} * operations"), [*KEYS], "left_semi")
    return broken.join(used, [*KEYS], "left").withColumn("what", F.lit("missed checks"))


def mistimed(timeouts: DataFrame, limits: Limits) -> list[DataFrame]:
    """Kinds with a timeout that is too long, or too short: which timeout would be better, and what it would save.

    Too long: with a much shorter one, at most 2 % of the answers would have been lost. Too short: too many expire, and
    answers come up to its end.
    """
    kind = Window.partitionBy("purgatory", "kind")
    used = {name: F.max(F.expr(f"IF(is_in_use, {name}, NULL)")).over(kind) for name in ("timeout_us", "expired_share")}
    rows = timeouts.withColumns({"used_us": used["timeout_us"], "used_share": used["expired_share"]})
    known = {"half_share": "timeout_us BETWEEN used_us / 2.1 AND used_us / 1.9, expired_share"}
    known |= {
        "least": "expired_share - used_share <= 0.02 * (1 - used_share), timeout_us",
        "used_mean_us": "is_in_use, waited_mean_us",
    }
    own = {name: F.min(F.expr(f"IF({value}, NULL)")).over(kind) for name, value in known.items()}
    rows = rows.withColumns(own).where(f"operations >= {_FEWEST}")
    of = {
        "timeout too long": "timeout_us = least AND timeout_us <= used_us / 5 AND used_share > 0.01",
        "timeout too short": f"is_in_use AND used_share > {limits.max_expired_share} "
        "AND half_share - used_share > 0.2 * (1 - used_share)",
    }
    return [rows.where(rule).withColumn("what", F.lit(what)) for what, rule in of.items()]
