"""Clean table -> a model of the workload, for each purgatory and kind of operation, in OUT/model.json.

How many arrive by hour of the day, and whether as a Poisson process; how long until they complete, as a log-normal
distribution; how popular keys are. An operation that ran out of time says only that it would have taken longer than
that, so do those cancelled and failed; one completed by the last try at its deadline says that it took less. How well
each part fits is printed, and plainly where it does not.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import exp
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .cleaning.journal_tables import OPERATIONS, read_clean
from .spark.session import session
from .workload import estimate
from .workload.estimate import BINS, Hour, LogNormal, Poisson, Popularity, Times
from .workload.model import HOURS, Workload, write_model

STREAM: Final = ("purgatory", "kind")
#: An operation with more keys counts as one with so many.
MOST_KEYS: Final = 64
COMPLETED, LONGER, SHORTER, AT_ONCE = "completed", "longer", "shorter", "at once"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("clean", help="folder that ingest has made")
    parser.add_argument("out", type=Path, help="folder of the model")


def run(args: argparse.Namespace) -> None:
    """Fit, and say how well it does."""
    with session("fit", scratch=args.out, master=args.master, memory=args.memory) as spark:
        workloads = fit(read_clean(spark, args.clean, OPERATIONS))
    if not workloads:
        raise PurgatoryError(f"no operations in {args.clean}")
    write_model(workloads, args.out / "model.json")
    for workload in workloads:
        print(f"{workload.purgatory}, {workload.kind}:", *workload.findings, sep="\n  ")
    print(f"The model is in {args.out / 'model.json'}")


def fit(operations: DataFrame) -> list[Workload]:
    """A model of each purgatory and kind in *operations*, which are as ingest leaves them."""
    streams: dict[tuple[str, str], _Stream] = defaultdict(_Stream)
    tables = (arrivals, times, timeouts, key_counts, popularity)
    for table in tables:
        for row in table(operations).collect():
            getattr(streams[row.purgatory, row.kind], table.__name__).append(row)
    return [stream.workload(*name) for name, stream in sorted(streams.items())]


# The sums that it takes. Each table is small, whatever the journal is.


def arrivals(operations: DataFrame) -> DataFrame:
    """purgatory, kind, hour, first, last, weight, squares, squares_of_seconds: of the whole seconds in it.

    The first and the last second are cut off by whoever began and ended the journal.
    """
    second = F.unix_seconds("watched_at").alias("second")
    per_second = operations.groupBy(*STREAM, second).agg(
        F.sum("weight").alias("weight"), F.sum(F.col("weight") ** 2).alias("squares")
    )
    whole = Window.partitionBy(*STREAM)
    bounds = per_second.withColumn("first", F.min("second").over(whole)).withColumn("last", F.max("second").over(whole))
    inside = (F.col("second") > F.col("first")) & (F.col("second") < F.col("last"))
    hours = bounds.groupBy(*STREAM, "first", "last", F.expr("second div 3600").alias("hour")).agg(
        _sum_if(inside, F.col("weight")).alias("weight"),
        _sum_if(inside, F.col("squares")).alias("squares"),
        _sum_if(inside, F.col("weight") ** 2).alias("squares_of_seconds"),
    )
    return hours.select(*STREAM, "hour", "first", "last", "weight", "squares", "squares_of_seconds")


def times(operations: DataFrame) -> DataFrame:
    """purgatory, kind, what, bin, weight, squares, total, total_squares: of the logarithms of the us waited."""
    at_once = (F.col("waited_us") <= 0) & (F.col("outcome") == "completed")
    # An end in the very instant of a beginning took less than a microsecond, and still some time.
    logarithm = F.log(F.greatest(F.col("waited_us"), F.lit(1)).cast("double"))
    last_try = F.when(F.col("missed_trigger"), SHORTER).otherwise(COMPLETED)
    what = F.when(at_once, AT_ONCE).when(F.col("outcome") == "completed", last_try).otherwise(LONGER)
    known = operations.select(*STREAM, what.alias("what"), logarithm.alias("x"), "weight")
    found = known.groupBy(*STREAM, "what", F.floor(F.col("x") * BINS).cast("int").alias("bin")).agg(
        F.sum("weight").alias("weight"),
        F.sum(F.col("weight") ** 2).alias("squares"),
        F.sum(F.col("weight") * F.col("x")).alias("total"),
        F.sum(F.col("weight") * F.col("x") ** 2).alias("total_squares"),
    )
    return found.select(*STREAM, "what", "bin", "weight", "squares", "total", "total_squares")


def timeouts(operations: DataFrame) -> DataFrame:
    """purgatory, kind, timeout_us, weight: of timeouts next to each other their mean; null: no deadline."""
    near = F.floor(F.log1p(F.col("timeout_us").cast("double")) * BINS)
    mean = F.sum(F.col("timeout_us") * F.col("weight")) / F.sum("weight")
    found = operations.groupBy(*STREAM, near.alias("bin")).agg(
        F.round(mean).cast("bigint").alias("timeout_us"), F.sum("weight").alias("weight")
    )
    return found.select(*STREAM, "timeout_us", "weight")


def key_counts(operations: DataFrame) -> DataFrame:
    """purgatory, kind, keys, weight."""
    keys = F.least(F.greatest(F.col("key_count"), F.lit(1)), F.lit(MOST_KEYS))
    found = operations.groupBy(*STREAM, keys.alias("keys")).agg(F.sum("weight").alias("weight"))
    return found.select(*STREAM, "keys", "weight")


def popularity(operations: DataFrame) -> DataFrame:
    """purgatory, kind, count, keys: so many keys have so many operations. Of its keys, an operation's first."""
    per_key = operations.groupBy(*STREAM, "key_hash").agg(F.round(F.sum("weight"), 3).alias("count"))
    found = per_key.groupBy(*STREAM, "count").agg(F.count(F.lit(1)).alias("keys"))
    return found.select(*STREAM, "count", "keys")


def _sum_if(condition: Column, value: Column) -> Column:
    return F.sum(F.when(condition, value).otherwise(0.0))


@dataclass
class _Stream:
    """What the tables say of one kind of operation, and what follows from that."""

    arrivals: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    timeouts: list[Row] = field(default_factory=list)
    key_counts: list[Row] = field(default_factory=list)
    popularity: list[Row] = field(default_factory=list)

    def workload(self, purgatory: str, kind: str) -> Workload:
        weight = sum(row.weight for row in self.times)
        squares = sum(row.squares for row in self.times)
        rates, poisson = self._arrivals(weight)
        completion = estimate.log_normal(self._times())
        keys = estimate.popularity([(row["count"], row["keys"]) for row in self.popularity], squares / weight)
        shares = {what: self._weight(what) / weight for what in (COMPLETED, LONGER, SHORTER, AT_ONCE)}
        known = list(rates.values())
        return Workload(
            purgatory=purgatory,
            kind=kind,
            arrivals_per_second=tuple(rates.get(hour, sum(known) / len(known)) for hour in range(HOURS)),
            first_hour=min(row["first"] for row in self.arrivals) // estimate.HOUR % HOURS,
            p50_ms=completion.p50_ms if completion else None,
            sigma=completion.sigma if completion else 0.0,
            timeouts_ms=_shares((_ms(row.timeout_us), row.weight) for row in self.timeouts),
            key_counts=_shares((row["keys"], row.weight) for row in self.key_counts),
            key_space=keys.keys,
            zipf=keys.zipf,
            at_once=shares[AT_ONCE],
            evidence={
                "operations": weight,
                "shares": shares,
                "hours_seen": sorted(rates),
                "poisson": asdict(poisson) | {"fits": poisson.fits},
                "completion": asdict(completion) | {"fits": completion.fits} if completion else None,
                "popularity": asdict(keys) | {"fits": keys.fits},
            },
            findings=tuple(_findings(weight, rates, poisson, completion, shares, keys)),
        )

    def _arrivals(self, weight: float) -> tuple[dict[int, float], Poisson]:
        first, last = min(row["first"] for row in self.arrivals), max(row["last"] for row in self.arrivals)
        hours = [
            Hour(row.hour, row.weight, row.squares, row.squares_of_seconds) for row in self.arrivals if row.weight > 0
        ]
        if not hours:  # over before a whole second was
            return {first // estimate.HOUR % HOURS: weight / (last - first + 1)}, Poisson(None, None)
        return estimate.rates(hours, first, last), estimate.poisson(hours, first, last)

    def _times(self) -> Times:
        done = [row for row in self.times if row.what == COMPLETED]
        weight, squares = sum(row.weight for row in done), sum(row.squares for row in done)
        return Times(
            weight=weight,
            total=sum(row.total for row in done),
            squares=sum(row.total_squares for row in done),
            longer=self._cut_off(LONGER),
            shorter=self._cut_off(SHORTER),
            histogram={row.bin: row.weight for row in done},
            effective=estimate.effective(weight, squares),
        )

    def _cut_off(self, what: str) -> estimate.Array:
        """Of each bin its mean, which is exact where all have the same timeout."""
        pairs = [(row.total / row.weight, row.weight) for row in self.times if row.what == what]
        return np.array(pairs, float).reshape(-1, 2)

    def _weight(self, what: str) -> float:
        return float(sum(row.weight for row in self.times if row.what == what))


def _shares(pairs: Iterator[tuple[Any, float]]) -> tuple[tuple[Any, float], ...]:
    """The values in order, none last, each with its share."""
    ordered = sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0))
    total = sum(weight for _, weight in ordered)
    return tuple((value, weight / total) for value, weight in ordered)


def _ms(us: int | None) -> float | None:
    return None if us is None else us / 1000


# In words


def _findings(
    weight: float,
    rates: dict[int, float],
    poisson: Poisson,
    completion: LogNormal | None,
    shares: dict[str, float],
    keys: Popularity,
) -> Iterator[str]:
    low, high = min(rates.values()), max(rates.values())
    span = f"{high:,.3g} a second" if len(rates) == 1 else f"{low:,.3g} to {high:,.3g} a second, by hour of the day"
    yield f"{weight:,.0f} operations, {span}."
    if len(rates) < HOURS:
        yield f"Only {len(rates)} of the 24 hours of the day were seen: the others are taken to be like their mean."
    yield _about_poisson(poisson)
    yield from _about_completion(completion, shares)
    yield from _about_keys(keys)


def _about_poisson(poisson: Poisson) -> str:
    if poisson.index is None or poisson.p is None:
        return "Whether arrivals are Poisson cannot be said: that takes more than one whole second."
    what = f"they vary {poisson.index:.2f} times as much from second to second (p = {poisson.p:.2g})"
    if poisson.fits:
        return f"Arrivals are Poisson as far as can be seen: {what}."
    how = "in bursts" if poisson.index > 1 else "more evenly"
    return f"ARRIVALS ARE NOT POISSON: they come {how}, {what}. A trace made of this model does not."


def _about_completion(completion: LogNormal | None, shares: dict[str, float]) -> Iterator[str]:
    yield (
        f"{shares[AT_ONCE]:.1%} never had to wait, {shares[COMPLETED] + shares[SHORTER]:.1%} completed after a while, "
        f"{shares[LONGER]:.1%} ran out of time or were cut off otherwise."
    )
    if completion is None:
        yield "NOTHING COMPLETED AFTER A WAIT: how long that would take is not known, and in a trace it never does."
        return
    model = ", ".join(f"p{percent} {completion.percentile_ms(percent):,.4g} ms" for percent in estimate.PERCENTILES)
    seen = [f"p{percent} {ms:,.4g} ms" for percent, ms in completion.seen_ms.items() if ms is not None]
    yield f"Time to completion, log-normal: {model}; seen: {', '.join(seen) or 'less than half completed in time'}."
    at = exp(completion.gap_at) / 1000
    gap = f"by {at:,.3g} ms, {completion.gap_seen:.1%} were complete, and {completion.gap_model:.1%} in the model"
    if completion.fits:
        yield f"That fits: where it is furthest off, {gap}."
    else:
        yield f"TIMES TO COMPLETION ARE NOT LOG-NORMAL: {gap}. Do not trust what follows from this model at such times."
    if shares[SHORTER] > 0.01:
        yield f"{shares[SHORTER]:.1%} were completed by the last try at their deadline only: a trigger was missed."


def _about_keys(keys: Popularity) -> Iterator[str]:
    like = "all alike" if keys.zipf == 0 else f"by rank to the power of -{keys.zipf:.2f}"
    yield f"{keys.keys:,} first keys, {like}; {keys.hottest:.1%} of operations wait under the hottest."
    if not keys.fits:
        yield f"KEYS ARE NOT THAT POPULAR: up to some rank, their share is off by {keys.largest_gap:.1%}."
    if keys.per_key < 5:
        yield f"Only {keys.per_key:.1f} operations per key: more keys exist than were seen, and ranks are guesses."
