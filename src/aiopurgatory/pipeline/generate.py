"""Make a trace from a model, or from one of the two workloads of Kafka's TestPurgatoryPerformance.

The same seed gives the same trace, on any machine and with any number of partitions.

    aiopurgatory pipeline generate --workload few --rows 1000000 OUT
    aiopurgatory pipeline generate --model OUT/model.json --rows 1000000 OUT

The trace is in OUT/trace, a row per request in order of arrival: arrival_us since the trace began; the ids of its watch
keys; completion_us from arrival to completion, null if nothing completes it; timeout_us.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf, nextafter
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError

from .model import HOURS, WORKLOADS, Workload, read_model

SCHEMA: Final = "arrival_us BIGINT, keys ARRAY<BIGINT>, completion_us BIGINT, timeout_us BIGINT"
#: Longer than any deadline that a purgatory keeps: such an operation waits until it is completed.
NO_TIMEOUT_US: Final = 1 << 53
#: Each number of a request is drawn by itself, so that it does not depend on how many another part draws.
ARRIVAL, TIME, TIMEOUT, KEY_COUNT, KEY, STEP, WORKLOAD = range(7)
_HOUR_US: Final = 3_600_000_000
_DRAWN: Final = "ARRAY<STRUCT<upto: DOUBLE, value: BIGINT>>"
#: Of the day's requests, how many come in an hour; of these, the part of a workload; and its parameters.
_PARTS: Final = (
    "low DOUBLE, high DOUBLE, least DOUBLE, upto DOUBLE, hour INT, "
    f"completions ARRAY<BIGINT>, timeouts {_DRAWN}, key_counts {_DRAWN}, widest BIGINT, ranks ARRAY<DOUBLE>"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder for the trace")
    parser.set_defaults(needs={})
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, help="model.json, written by fit")
    about = "a workload of Kafka's benchmark: few or many requests expire"
    source.add_argument("--workload", choices=WORKLOADS, help=about)
    parser.add_argument("--rows", type=rows, default=1_000_000, help="requests in the trace (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    about = "requests per second, on average over the day (default: the model's)"
    parser.add_argument("--rate", type=float, help=about)


def rows(text: str) -> int:
    """Return the number of rows in an option. Raises: PurgatoryError: it is not positive."""
    if (number := int(text)) < 1:
        raise PurgatoryError(f"rows must be >= 1, got {number}")
    return number


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Generate, and print the path of the trace."""
    workloads = read_model(args.model) if args.model else [WORKLOADS[args.workload]]
    requests = trace(spark.range(args.rows), workloads, seed=args.seed, rate=args.rate)
    requests.write.mode("overwrite").parquet(f"{args.out}/trace")
    print(f"{args.rows:,} requests are in {args.out}/trace")


def trace(numbers: DataFrame, workloads: Sequence[Workload], *, seed: int = 1, rate: float | None = None) -> DataFrame:
    """Numbers of requests -> requests, in order of arrival.

    Args:
        numbers: as of ``spark.range(count)``.
        workloads: mixed in proportion to their rates; at least one.
        seed: of the random numbers (default: 1).
        rate: requests per second, on average over the hours of the day (default: of one instance of the workloads).

    Raises: PurgatoryError: the rate is out of its range.
    """
    if rate is not None and not 0 < rate < inf:
        raise PurgatoryError(f"rate must be > 0 per second, got {rate}")
    parts = _parts(workloads, rate)
    of_day = F.lit(parts[-1][1])
    counted = numbers.crossJoin(F.broadcast(numbers.agg(F.count("*").alias("count"))))
    # Given their number, the times of a Poisson process are uniform.
    placed = counted.withColumn("days", _uniform(seed, ARRIVAL) * F.col("count") / of_day)
    placed = placed.withColumn("at", F.least(F.col("days") % 1 * of_day, F.lit(nextafter(parts[-1][1], 0))))
    known = F.broadcast(numbers.sparkSession.createDataFrame(parts, _PARTS))
    drawn = placed.withColumn("which", _uniform(seed, WORKLOAD))
    requests = drawn.join(known, F.expr("at >= low AND at < high AND which >= least AND which < upto"), "inner")
    hours = F.floor("days") * HOURS + F.col("hour") + F.expr("(at - low) / (high - low)")
    made = requests.select(
        "id",
        (hours * _HOUR_US).cast("bigint").alias("arrival_us"),
        _keys(seed).alias("keys"),
        F.element_at("completions", (_uniform(seed, TIME) * F.size("completions")).cast("int") + 1).alias(
            "completion_us"
        ),
        _picked("timeouts", _uniform(seed, TIMEOUT)).cast("bigint").alias("timeout_us"),
    )
    return made.orderBy("arrival_us", "id").drop("id")


def _uniform(seed: int, part: int, *more: Column) -> Column:
    """From 0 to 1, by the number of the request: Spark's rand() would depend on the partitions.

    With a bit less than a number has, no product with a size is the size itself.
    """
    return F.shiftrightunsigned(F.xxhash64(F.col("id"), F.lit(seed), F.lit(part), *more), 12) / F.lit(float(1 << 52))


def _parts(workloads: Sequence[Workload], rate: float | None) -> list[tuple[Any, ...]]:
    """Return rows of _PARTS, in order of their time."""
    first_hour = workloads[0].first_hour
    rates = [[each.of_instance((first_hour + hour) % HOURS) for each in workloads] for hour in range(HOURS)]
    factor = 3600 * (rate * HOURS / sum(map(sum, rates)) if rate else 1)
    bounds = pairwise([0.0, *accumulate(sum(of_hour) * factor for of_hour in rates)])
    return [
        (*bound, *shares, hour, *_parameters(each))
        for hour, (bound, of_hour) in enumerate(zip(bounds, rates, strict=True))
        for shares, each in zip(_shares(of_hour), workloads, strict=True)
    ]


def _shares(rates: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the part from 0 to 1 that each rate has of all."""
    upto = [*accumulate(rates)]
    return pairwise([0.0, *(each / (upto[-1] or 1.0) for each in upto[:-1]), 1.0])


def _parameters(of: Workload) -> tuple[Any, ...]:
    completions = [None if ms is None else _us(ms) for ms in of.completion_ms]
    timeouts = [(NO_TIMEOUT_US if ms is None else _us(ms), share) for ms, share in of.timeouts_ms]
    widest = max(count for count, _ in of.key_counts)
    return completions, _cumulated(timeouts), _cumulated(of.key_counts), widest, of.key_ranks


def _us(ms: float) -> int:
    return min(round(ms * 1000), NO_TIMEOUT_US)


def _cumulated(pairs: Sequence[tuple[int, float]]) -> list[tuple[float, int]]:
    upto = [*accumulate(share for _, share in pairs)]
    return [*zip([*upto[:-1], 2.0], (value for value, _ in pairs), strict=True)]


def _picked(pairs: str, uniform: Column) -> Column:
    return F.filter(pairs, lambda pair: pair["upto"] > uniform)[0]["value"]


def _keys(seed: int) -> Column:
    """Distinct keys: the first by its popularity, the others on a circle, each a random step further."""
    circle = F.greatest(F.element_at("ranks", -1), 2 * F.col("widest"))
    width = F.floor(circle / F.col("widest"))
    place = _uniform(seed, KEY) * (F.size("ranks") - 1)
    low, high = (F.element_at("ranks", place.cast("int") + n) for n in (1, 2))
    first = F.floor(low + (place % 1) * (high - low))

    def key(number: Column) -> Column:
        step = F.when(number == 0, F.lit(0)).otherwise(F.floor(_uniform(seed, STEP, number) * width))
        return ((first + number * width + step) % circle).cast("bigint")

    last = _picked("key_counts", _uniform(seed, KEY_COUNT)) - 1
    return F.transform(F.sequence(F.lit(0).cast("bigint"), last), key)
