"""Sums -> a model of the workload for each purgatory and kind of operation, in model.json.

Arrivals per second by hour of the day, a log-normal time to completion, and the popularity of a purgatory's keys.
Spark adds the sums up to what fits a page; numpy estimates from that. Operations that were cancelled or failed count as
completed then: they ended before their deadline. Those that expired are right-censored. Those completed by the last try
at their deadline are left out of the estimate, as nobody knows when they could have completed. Findings tell how well
each part fits, and name extrapolated numbers. A day without a row of the purgatory counts as not recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .attempts import MODEL, dates_gone, documents, newest, sums, without, write
from .estimates import PERCENTILES, Binned, LogNormal, Popularity, log_normal, popularity
from .model import HOURS, Workload, to_json
from .page.figures import count, duration, share
from .report_tables import spans
from .sums import named
from .tables import DAY, HOUR, KEYS, OUTCOMES, SECOND

#: How operations end. With the last try at their deadline: nobody knows when they could have completed.
AT_ONCE, LAST_TRY, ENDED, EXPIRED = range(4)
Rows: TypeAlias = Sequence[Mapping[str, Any]]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder written by ingest")


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Fit, and print how well the models fit."""
    workloads, path = fit(spark, args.out), documents(args.out) / MODEL
    write(path, to_json(workloads))
    for workload in workloads:
        print(f"{workload.purgatory}, {workload.kind}:", *workload.findings, sep="\n  ")
    print(f"The model is in {path}")


def fit(spark: SparkSession, out: str) -> list[Workload]:
    """Fit a model to each purgatory and kind in the folder *out*.

    Raises: PurgatoryError: ingest has not found an operation.
    """
    gone = dates_gone(spark, out, newest(spark, out))
    hours, daily = (without(sums(spark, out, name), name, gone) for name in ("hours", "daily"))
    kinds = _grouped(endings(daily, hours), *KEYS)
    if not kinds:
        raise PurgatoryError(f"no operations in {out}: ingest a journal first")
    shapes = [_grouped(shape(hours, of), *KEYS) for of in (f"hour % {HOURS}", "timeout", "key_count")]
    counts = _grouped(popularities(sums(spark, out, "keys")), "purgatory")
    keys = {name: popularity([(row["operations"], row["keys"]) for row in rows]) for name, rows in counts.items()}
    covered = _grouped(coverage(hours), "purgatory")
    return [
        _workload(name, rows, *(each[name] for each in shapes), keys[name[:1]], covered[name[:1]])
        for name, rows in kinds.items()
    ]


def _grouped(table: DataFrame, *by: str) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """Collect a small table: its rows by the columns *by*, in order of all columns, null last."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in table.orderBy(*map(F.asc_nulls_last, table.columns)).toArrow().to_pylist():
        found[tuple(row[name] for name in by)].append(row)
    return found


# DataFrame -> DataFrame


def endings(daily: DataFrame, hours: DataFrame) -> DataFrame:
    """Sums by day -> operations by purgatory, kind, how they ended, and the bucket of ``waited``."""
    end = F.when(F.col("outcome") == OUTCOMES.index("expired"), EXPIRED).when(F.col("waited") < 0, AT_ONCE)
    end = end.when(F.col("missed_trigger"), LAST_TRY).otherwise(ENDED)
    by = daily.groupBy("series", end.alias("end"), F.greatest("waited", F.lit(0)).cast("int").alias("bucket"))
    return named(by.agg(F.sum("operations").alias("operations")), hours)


def shape(hours: DataFrame, of: str) -> DataFrame:
    """Sums by hour -> sums by purgatory, kind, and the expression *of*."""
    by = hours.groupBy(*KEYS, F.expr(of).alias("of"))
    return by.agg(*(F.sum(name).alias(name) for name in ("operations", "squares", "total")))


def popularities(keys: DataFrame) -> DataFrame:
    """Sums of keys -> by purgatory, a number of operations, and how many keys have that number: to three digits."""
    summed = keys.groupBy("purgatory", "key_hash").agg(F.sum("operations").alias("operations"))
    size = F.pow(F.lit(10.0), F.floor(F.log10(F.greatest("operations", F.lit(1.0)))) - 2)
    near = F.round(F.col("operations") / size).alias("near"), size.alias("size")
    counted = summed.groupBy("purgatory", *near).agg(
        F.avg("operations").alias("operations"), F.count("*").alias("keys")
    )
    return counted.select("purgatory", "operations", F.col("keys").cast("double").alias("keys"))


def coverage(hours: DataFrame) -> DataFrame:
    """Sums by hour -> by purgatory and hour of the day, the seconds that the journal covers, and its first end."""
    hour = F.explode(F.sequence(F.lit(0), F.lit(HOURS - 1))).alias("hour")
    days = spans(hours.withColumn("series", F.col("purgatory"))).select("*", hour)
    start = F.unix_date("date").cast("bigint") * DAY + F.col("hour").cast("bigint") * HOUR
    seconds = (F.least(F.col("last_us") + 1, start + HOUR) - F.greatest("first_us", start)) / SECOND
    covered = (
        days.withColumn("seconds", seconds).where("seconds > 0").groupBy(F.col("series").alias("purgatory"), "hour")
    )
    return covered.agg(F.sum("seconds").alias("seconds"), F.min("first_us").alias("first_us"))


# On the driver


def _workload(
    name: Sequence[str], ended: Rows, by_hour: Rows, timeouts: Rows, counts: Rows, keys: Popularity, covered: Rows
) -> Workload:
    """Args: name: purgatory and kind. Rows are of the functions above."""
    total, squares = (sum(row[each] for row in by_hour) for each in ("operations", "squares"))
    ends = [_binned([row for row in ended if row["end"] == end]) for end in (AT_ONCE, LAST_TRY, ENDED, EXPIRED)]
    shares = [float(each.weights.sum()) / total for each in ends]
    completion = log_normal(ends[ENDED], ends[EXPIRED], squares / total)
    found = {row["of"]: row["operations"] for row in by_hour}
    # A journal of less than a second says nothing about a second.
    rates = {row["hour"]: found.get(row["hour"], 0.0) / max(row["seconds"], 1.0) for row in covered}
    workload = Workload(
        purgatory=name[0],
        kind=name[1],
        arrivals_per_second=tuple(rates.get(hour, sum(rates.values()) / len(rates)) for hour in range(HOURS)),
        first_hour=min(row["first_us"] for row in covered) // HOUR % HOURS,
        p50_ms=completion.p50_ms if completion else None,
        sigma=completion.sigma if completion else 0.0,
        # The column is in order, with null at last.
        timeouts_ms=tuple(
            (None if row["of"] is None else round(row["total"] / row["operations"]) / 1000, row["operations"] / total)
            for row in timeouts
        ),
        key_counts=tuple((row["of"], row["operations"] / total) for row in counts),
        key_space=keys.keys,
        zipf=keys.zipf,
        at_once=shares[AT_ONCE],
        operations=total,
        seconds_covered=sum(row["seconds"] for row in covered),
        expired=shares[EXPIRED],
    )
    findings = *_about_load(workload, rates, shares), *_about_completion(completion), *_about_keys(keys)
    return replace(workload, findings=findings)


def _binned(rows: Rows) -> Binned:
    return Binned(*(np.array([row[name] for row in rows]) for name in ("bucket", "operations")))


# In words


def _about_load(of: Workload, rates: Mapping[int, float], shares: Sequence[float]) -> Iterator[str]:
    arrivals = f"{count(min(rates.values()))} to {count(max(rates.values()))} per second, by hour of the day"
    yield f"{of.operations:,.0f} operations in {duration(of.seconds_covered * 1e6)}: {arrivals}."
    if len(rates) < HOURS:
        yield f"Extrapolated: {HOURS - len(rates)} of the 24 hours of the day were not seen. They get the mean."
    yield (
        f"{share(shares[AT_ONCE])} never had to wait, {share(shares[ENDED] + shares[LAST_TRY])} ended after a wait "
        f"before their deadline, {share(shares[EXPIRED])} expired."
    )
    if shares[LAST_TRY] > 0.01:
        yield f"{share(shares[LAST_TRY])} are missed triggers. The model leaves out when they completed."


def _about_keys(keys: Popularity) -> Iterator[str]:
    law = "equally popular" if keys.zipf == 0 else f"popularity falls with rank to the power of -{keys.zipf:.3g}"
    yield f"{keys.keys:,} first keys, {law}. {share(keys.hottest)} of operations wait under the hottest."
    if not keys.fits:
        yield f"KEY POPULARITY IS NOT ZIPF: up to some rank, the keys' share is off by {share(keys.largest_gap)}."


def _about_completion(found: LogNormal | None) -> Iterator[str]:
    if found is None:
        yield "NOTHING ENDED BETWEEN ITS BEGINNING AND ITS DEADLINE: in a trace, waits never complete."
        return
    model = [f"p{percent} {duration(found.percentile_ms(percent) * 1000)}" for percent in PERCENTILES]
    yield f"Time to completion, log-normal: {', '.join(model)}; sigma {found.sigma:.3g}."
    if any(map(found.extrapolated, PERCENTILES)):
        yield f"Extrapolated: times over {duration(found.followed_ms * 1000)}, the longest that was seen."
    fits = "The model fits. Largest gap" if found.fits else "TIMES TO COMPLETION ARE NOT LOG-NORMAL"
    gap = f"{share(found.gap_seen)} had completed (Kaplan-Meier), {share(found.gap_model)} in the model"
    yield f"{fits}: by {duration(found.gap_at_ms * 1000)}, {gap}."
