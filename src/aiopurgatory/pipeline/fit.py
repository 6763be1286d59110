"""Sums -> a model of the workload for each purgatory and kind of operation, in model.json.

Arrivals per second by hour of the day, the time to completion, and the popularity of a purgatory's keys. Spark adds the
sums up to what fits a page; numpy estimates from that. Operations that were cancelled or failed count as completed
then: they ended before their deadline. Expired ones are right-censored. Operations completed by the last try at their
deadline are left out of the estimate, as nobody knows when they could have completed. Findings tell what is unknown or
extrapolated. A day without a row of the purgatory counts as not recorded.
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

from .attempts import MODEL, NO_SUMS, committed, documents, sums, valid, write
from .model import HOURS, QUANTILES, Workload, to_json
from .page.figures import count, duration, share, shown
from .report_tables import spans
from .sums import kinds, named
from .tables import DAY, GROWTH, HOUR, KEYS, OUTCOMES, SECOND

#: How operations end. With the last try at their deadline: nobody knows when they could have completed.
AT_ONCE, LAST_TRY, ENDED, EXPIRED = range(4)
Rows: TypeAlias = Sequence[Mapping[str, Any]]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder written by ingest")
    parser.set_defaults(needs={"out": ("sums", NO_SUMS)})


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
    line = committed(spark, out)
    hours, daily, snapshots = (sums(spark, out, name, line) for name in ("hours", "daily", "snapshots"))
    ended = _grouped(endings(daily, kinds(hours)), *KEYS)
    if not ended:
        raise PurgatoryError(f"no operation has ended in {out} so far, and a model is made of such: run it again later")
    by_hour, timeouts, key_counts = (
        _grouped(shape(hours, of), *KEYS) for of in (f"hour % {HOURS}", "timeout", "key_count")
    )
    keys = _grouped(popularities(sums(spark, out, "keys", line)), "purgatory")
    together = {row.purgatory: row.instances for row in instances(snapshots).collect()}
    covered = _grouped(coverage(hours), "purgatory")
    return [
        _workload(
            *(name, rows, by_hour[name], timeouts[name], key_counts[name], ranks(keys[name[:1]])),
            *(covered[name[:1]], together.get(name[0], 1.0)),
        )
        for name, rows in ended.items()
    ]


def _grouped(table: DataFrame, *by: str) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """Collect a small table: its rows by the columns *by*, in order of all columns, null last."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in valid(table).orderBy(*map(F.asc_nulls_last, table.columns)).toArrow().to_pylist():
        found[tuple(row[name] for name in by)].append(row)
    return found


# DataFrame -> DataFrame


def endings(daily: DataFrame, kinds: DataFrame) -> DataFrame:
    """Sums by day -> operations by purgatory, kind, how they ended, and the bucket of ``waited``."""
    end = F.when(F.col("outcome") == OUTCOMES.index("expired"), EXPIRED).when(F.col("waited") < 0, AT_ONCE)
    end = end.when(F.col("missed_trigger"), LAST_TRY).otherwise(ENDED)
    by = daily.groupBy("series", end.alias("end"), F.col("waited").alias("bucket"))
    return named(by.agg(F.sum("operations").alias("operations")), kinds)


def shape(hours: DataFrame, of: str) -> DataFrame:
    """Sums by hour -> sums by purgatory, kind, and the expression *of*."""
    by = hours.groupBy(*KEYS, F.expr(of).alias("of"))
    return by.agg(*(F.sum(name).alias(name) for name in ("operations", "total")))


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
    days = spans(hours).select("*", hour)
    start = F.unix_date("date").cast("bigint") * DAY + F.col("hour").cast("bigint") * HOUR
    seconds = (F.least(F.col("last_us") + 1, start + HOUR) - F.greatest("first_us", start)) / SECOND
    by = days.withColumn("seconds", seconds).where("seconds > 0").groupBy("purgatory", "hour")
    return by.agg(F.sum("seconds").alias("seconds"), F.min("first_us").alias("first_us"))


def instances(snapshots: DataFrame) -> DataFrame:
    """Snapshots -> by purgatory, how many instances there were at once, on average."""
    date, at = F.to_date("at").alias("date"), F.unix_micros("at")
    lives = snapshots.groupBy("purgatory", date, "instance").agg(F.min(at).alias("begun"), F.max(at).alias("ended"))
    by_day = lives.groupBy("purgatory", "date")
    days = by_day.agg(F.expr("sum(ended - begun) AS lived"), F.expr("max(ended) - min(begun) AS span"))
    mean = F.sum("lived") / F.nullif(F.sum("span"), F.lit(0))
    return days.groupBy("purgatory").agg(F.greatest(F.coalesce(mean, F.lit(1.0)), F.lit(1.0)).alias("instances"))


# On the driver


def _workload(
    name: Sequence[str],
    ended: Rows,
    by_hour: Rows,
    timeouts: Rows,
    counts: Rows,
    keys: tuple[float, ...],
    covered: Rows,
    instances: float,
) -> Workload:
    """Args: name: purgatory and kind. Rows are of the functions above."""
    total = sum(row["operations"] for row in by_hour)
    shares = [sum(row["operations"] for row in ended if row["end"] == end) / total for end in range(4)]
    found = {row["of"]: row["operations"] for row in by_hour}
    # A journal of less than a second says nothing about a second.
    rates = {row["hour"]: found.get(row["hour"], 0.0) / max(row["seconds"], 1.0) for row in covered}
    workload = Workload(
        purgatory=name[0],
        kind=name[1],
        arrivals_per_second=tuple(rates.get(hour, sum(rates.values()) / len(rates)) for hour in range(HOURS)),
        first_hour=min(row["first_us"] for row in covered) // HOUR % HOURS,
        completion_ms=completions(ended),
        # The column is in order, with null at last.
        timeouts_ms=tuple(
            (None if row["of"] is None else round(row["total"] / row["operations"]) / 1000, row["operations"] / total)
            for row in timeouts
        ),
        key_counts=tuple((row["of"], row["operations"] / total) for row in counts),
        key_ranks=keys,
        operations=total,
        seconds_covered=sum(row["seconds"] for row in covered),
        expired=shares[EXPIRED],
        instances=instances,
    )
    return replace(
        workload, findings=(*_about_load(workload, rates, shares), *_about_times(workload), *_about_keys(keys))
    )


def completions(ended: Rows) -> tuple[float | None, ...]:
    """Return the times to completion in ms, by Kaplan and Meier's estimate; None: longer than all that were seen.

    Args: ended: rows of endings(). Completed operations took the middle of their bucket, expired ones over its end.
    """
    bins, weights = (np.array([row[name] for row in ended], float) for name in ("bucket", "operations"))
    done, longer = (
        np.bincount(bins.astype(int) + 1, weights * [row["end"] in ends for row in ended])
        for ends in ((AT_ONCE, ENDED), (EXPIRED,))
    )
    at_risk = (done + longer)[::-1].cumsum()[::-1]
    complete = 1 - (1 - done / np.maximum(at_risk, 1e-9)).cumprod()
    times = [0.0, *(GROWTH ** np.arange(len(done) - 1) * (2e-3 / (GROWTH + 1)))]
    places = complete.searchsorted((np.arange(QUANTILES) + 0.5) / QUANTILES)
    return tuple(float(f"{times[place]:.4g}") if place < len(times) else None for place in places)


def ranks(counts: Rows) -> tuple[float, ...]:
    """Return the keys' ranks by their share of operations. Args: counts: rows of popularities()."""
    operations, keys = np.array(sorted(((row["operations"], row["keys"]) for row in counts), reverse=True)).T
    share_of_all = (operations * keys).cumsum() / (operations @ keys)
    found = np.interp(np.linspace(0, 1, QUANTILES + 1), [0, *share_of_all], [0, *keys.cumsum()])
    return tuple(found.tolist())


# In words


def _about_load(of: Workload, rates: Mapping[int, float], shares: Sequence[float]) -> Iterator[str]:
    arrivals = f"{count(min(rates.values()))} to {count(max(rates.values()))} per second, by hour of the day"
    yield f"{of.operations:,.0f} operations in {duration(of.seconds_covered * 1e6)}: {arrivals}."
    if of.instances > 1:
        yield f"{count(round(of.instances, 1))} instances share them, on average. A trace has the requests of one."
    if len(rates) < HOURS:
        yield f"Extrapolated: {HOURS - len(rates)} of the 24 hours of the day were not seen. They get the mean."
    yield (
        f"{share(shares[AT_ONCE])} never had to wait, {share(shares[ENDED] + shares[LAST_TRY])} ended after a wait "
        f"before their deadline, {share(shares[EXPIRED])} expired."
    )
    if shares[LAST_TRY] > 0.01:
        yield f"{share(shares[LAST_TRY])} are missed triggers. The model leaves out when they completed."


def _about_times(of: Workload) -> Iterator[str]:
    times = of.completion_ms
    known = [each for each in times if each is not None]
    if not any(known):
        yield "NOTHING ENDED BETWEEN ITS BEGINNING AND ITS DEADLINE: in a trace, waits never complete."
        return
    percentiles = [f"p{n} {shown(times[n * QUANTILES // 100], '_ms')}" for n in (50, 90, 99)]
    yield f"Time to completion: {', '.join(percentiles)}."
    if len(known) < QUANTILES:
        never = share(1 - len(known) / QUANTILES)
        longest = duration(known[-1] * 1000)
        yield f"Unknown: times over {longest}, the longest that was seen. In a trace, {never} never complete."


def _about_keys(ranks: Sequence[float]) -> Iterator[str]:
    hottest = float(np.interp(1, ranks, np.linspace(0, 1, len(ranks))))
    yield f"{ranks[-1]:,.0f} first keys. {share(hottest)} of operations wait under the hottest."
