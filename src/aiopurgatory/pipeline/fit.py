"""Sums -> a model of the workload for each purgatory and kind of operation, in model.json.

Arrivals per second by hour of the day, a log-normal time to completion, and the popularity of a purgatory's keys.
Spark adds the sums up to what fits a page; numpy estimates from that. Operations that were cancelled or failed count as
completed then: they ended before their deadline. Those that expired are right-censored. Those completed by the last try
at their deadline are left-censored. Findings tell how well each part fits, and name extrapolated numbers. A day without
a row of the purgatory counts as not recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from aiopurgatory.errors import PurgatoryError

from . import documents
from .attempts import sums
from .estimates import PERCENTILES, Array, Binned, LogNormal, Popularity, log_normal, popularity
from .model import HOURS, Workload, expired_share, to_json
from .page.wording import duration, share
from .session import session_of
from .sums import named
from .tables import DAY, HOUR, KEYS, OUTCOMES, SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What a row of shapes() counts.
AT_ONCE, LAST_TRY, ENDED, EXPIRED, BY_HOUR, TIMEOUTS, KEY_COUNTS = range(7)
WHATS: Final = 7
_COUNTED: Final = ("what", "number", "operations", "squares", "total")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder written by ingest")
    documents.argument(parser, documents.MODEL)


def run(args: argparse.Namespace) -> None:
    """Fit, and print how well the models fit."""
    with session_of(args) as spark:
        workloads = fit(spark, args.out)
    path = documents.folder(args.documents, args.out) / documents.MODEL
    documents.write(path, to_json(workloads))
    for workload in workloads:
        print(f"{workload.purgatory}, {workload.kind}:", *workload.findings, sep="\n  ")
    print(f"The model is in {path}")


def fit(spark: SparkSession, out: str) -> list[Workload]:
    """Fit a model to each purgatory and kind in the folder *out*.

    Raises: PurgatoryError: ingest has not found an operation.
    """
    hours = sums(spark, out, "hours")
    kinds = _grouped(shapes(sums(spark, out, "daily"), hours), *KEYS)
    if not kinds:
        raise PurgatoryError(f"no operations in {out}: ingest a journal first")
    counts = _grouped(popularities(sums(spark, out, "keys")), "purgatory")
    keys = {name: popularity([(row["operations"], row["keys"]) for row in rows]) for name, rows in counts.items()}
    covered = _grouped(coverage(hours), "purgatory")
    return [_Kind(_binned(rows), keys[name[:1]], covered[name[:1]]).workload(*name) for name, rows in kinds.items()]


def _grouped(table: DataFrame, *by: str) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Collect a small table: its rows by the columns *by*, in order of these."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in table.orderBy(*by).toArrow().to_pylist():
        found[tuple(row[name] for name in by)].append(row)
    return found


def _binned(rows: Sequence[Mapping[str, Any]]) -> dict[int, Binned]:
    def binned(own: list[Mapping[str, Any]]) -> Binned:
        columns = [np.array([row[name] for row in own], np.float64) for name in _COUNTED[1:]]
        return Binned(columns[0].astype(np.int64), columns[3] / columns[1], columns[1], columns[2])

    ordered = sorted(rows, key=lambda row: row["number"])
    return {what: binned([row for row in ordered if row["what"] == what]) for what in range(WHATS)}


# DataFrame -> DataFrame


def shapes(daily: DataFrame, hours: DataFrame) -> DataFrame:
    """Sums -> purgatory, kind, what, number, and the sums of operations, squares and total.

    ``total`` sums weight * x. By ``what``:
        AT_ONCE, LAST_TRY, ENDED, EXPIRED: the number is the bucket of ``waited``; x is ln(microseconds).
        BY_HOUR: the number is the hour of the day.
        TIMEOUTS: the number is the bin of the timeout, -1 without one; x is the timeout in microseconds.
        KEY_COUNTS: the number is how many keys.
    """
    end = F.when(F.col("outcome") == OUTCOMES.index("expired"), EXPIRED).when(F.col("waited") < 0, AT_ONCE)
    end = end.when(F.col("missed_trigger"), LAST_TRY).otherwise(ENDED)
    number = F.greatest("waited", F.lit(0))
    ends = named(_summed(daily, ["series"], end, number, F.col("logs")), hours).select(*KEYS, *_COUNTED)
    timeout = F.coalesce("timeout", F.lit(-1))
    of_hours = [
        _summed(hours, KEYS, F.lit(what), number, F.col("total"))
        for what, number in ((BY_HOUR, F.col("hour") % HOURS), (TIMEOUTS, timeout), (KEY_COUNTS, F.col("key_count")))
    ]
    for each in of_hours:
        ends = ends.unionByName(each)
    return ends


def _summed(rows: DataFrame, series: Sequence[str], what: Column, number: Column, total: Column) -> DataFrame:
    by: list[Column | str] = [*series, what.cast("int").alias("what"), number.cast("bigint").alias("number")]
    counts = [F.sum(name).alias(name) for name in ("operations", "squares")]
    return rows.groupBy(*by).agg(*counts, F.sum(F.coalesce(total, F.lit(0.0))).alias("total"))


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
    """Sums by hour -> by purgatory and hour of the day, the seconds that the journal covers, and its first end.

    A day is covered from its first end to its last, and from or to midnight if the day beside it has rows, too.
    """
    day = F.expr(f"first_us div {DAY}").alias("day")
    ends = F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")
    order = Window.partitionBy("purgatory").orderBy("day")
    days = hours.groupBy("purgatory", day).agg(*ends)
    midnight = F.col("day") * DAY
    begin = F.when(F.lag("day").over(order) == F.col("day") - 1, midnight).otherwise(F.col("first_us"))
    end = F.when(F.lead("day").over(order) == F.col("day") + 1, midnight + DAY).otherwise(F.col("last_us") + 1)
    spans = days.withColumns({"begin": begin, "end": end, "hour": F.sequence(F.lit(0), F.lit(HOURS - 1))})
    spans = spans.withColumn("hour", F.explode("hour"))
    start = midnight + F.col("hour").cast("bigint") * HOUR
    seconds = (F.least("end", start + HOUR) - F.greatest("begin", start)) / SECOND
    covered = spans.withColumn("seconds", seconds).where("seconds > 0").groupBy("purgatory", "hour")
    first = F.min("first_us").over(Window.partitionBy("purgatory")).alias("first_us")
    summed = covered.agg(F.sum("seconds").alias("seconds"), F.min("first_us").alias("first_us"))
    return summed.select("purgatory", "hour", "seconds", first)


# On the driver


@dataclass
class _Kind:
    """The sums of one kind of operation, and the estimates made from them."""

    rows: Mapping[int, Binned]
    keys: Popularity
    #: Rows of coverage().
    coverage: Sequence[Mapping[str, Any]]

    def workload(self, purgatory: str, kind: str) -> Workload:
        known, completion = self.rates, self.completion
        typical = sum(known.values()) / len(known)
        timeouts, key_counts = self.rows[TIMEOUTS], self.rows[KEY_COUNTS]
        bins = zip(timeouts.bins.tolist(), timeouts.means.tolist(), strict=True)
        workload = Workload(
            purgatory=purgatory,
            kind=kind,
            arrivals_per_second=tuple(known.get(hour, typical) for hour in range(HOURS)),
            first_hour=self.coverage[0]["first_us"] // HOUR % HOURS,
            p50_ms=completion.p50_ms if completion else None,
            sigma=completion.sigma if completion else 0.0,
            timeouts_ms=_shares(
                [None if number < 0 else round(mean) / 1000 for number, mean in bins], timeouts.weights
            ),
            key_counts=_shares(key_counts.bins.tolist(), key_counts.weights),
            key_space=self.keys.keys,
            zipf=self.keys.zipf,
            at_once=self.share(AT_ONCE),
            evidence=self._evidence(),
        )
        return replace(workload, findings=tuple(_findings(self, workload)))

    def share(self, *what: int) -> float:
        return float(sum(self.rows[each].weights.sum() for each in what)) / self.weight

    @cached_property
    def covered(self) -> dict[int, float]:
        """The seconds that the journal covers, by hour of the day."""
        return {row["hour"]: row["seconds"] for row in self.coverage}

    @cached_property
    def weight(self) -> float:
        """The number of operations."""
        return float(self.rows[BY_HOUR].weights.sum())

    @cached_property
    def completion(self) -> LogNormal | None:
        return log_normal(*(self.rows[what] for what in (ENDED, EXPIRED, LAST_TRY)))

    @cached_property
    def rates(self) -> dict[int, float]:
        """Arrivals per second by hour of the day, for the hours covered."""
        rows = self.rows[BY_HOUR]
        counts = np.bincount(rows.bins, rows.weights, HOURS).tolist()
        # A journal of less than a second says nothing about a second.
        return {hour: counts[hour] / max(seconds, 1.0) for hour, seconds in sorted(self.covered.items())}

    def _evidence(self) -> dict[str, Any]:
        ends = {"at once": AT_ONCE, "ended": ENDED, "last try": LAST_TRY, "expired": EXPIRED}
        completion = self.completion
        return {
            "operations": self.weight,
            "seconds_covered": sum(self.covered.values()),
            "hours_seen": sorted(self.rates),
            "shares": {name: self.share(what) for name, what in ends.items()},
            "completion": asdict(completion) | {"fits": completion.fits} if completion else None,
            "popularity": asdict(self.keys) | {"fits": self.keys.fits},
        }


def _shares(values: Sequence[Any], weights: Array) -> tuple[tuple[Any, float], ...]:
    """The values in order, None last, each with its share."""
    pairs = zip(values, (weights / weights.sum()).tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0)))


# In words


def _findings(kind: _Kind, workload: Workload) -> Iterator[str]:
    low, high = min(kind.rates.values()), max(kind.rates.values())
    yield f"{kind.weight:,.0f} operations in {duration(sum(kind.covered.values()) * 1e6)}."
    yield f"Arrivals: {low:,.3g} to {high:,.3g} per second, by hour of the day."
    if len(kind.rates) < HOURS:
        yield f"Extrapolated: {HOURS - len(kind.rates)} of the 24 hours of the day were not seen. They get the mean."
    yield (
        f"{share(kind.share(AT_ONCE))} never had to wait, {share(kind.share(ENDED, LAST_TRY))} ended after a wait "
        f"before their deadline, {share(kind.share(EXPIRED))} expired; {share(expired_share(workload))} in the model."
    )
    if kind.share(LAST_TRY) > 0.01:
        yield f"{share(kind.share(LAST_TRY))} were completed only by the last try at their deadline: missed triggers."
    yield from _about_completion(kind.completion)
    keys = kind.keys
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
    gap = (
        f"by {duration(found.gap_at_ms * 1000)}, {share(found.gap_seen)} had completed (Kaplan-Meier), "
        f"{share(found.gap_model)} in the model"
    )
    if found.fits:
        yield f"The model fits. Largest gap: {gap}."
    else:
        yield f"TIMES TO COMPLETION ARE NOT LOG-NORMAL: {gap}. Do not trust the model near such times."
