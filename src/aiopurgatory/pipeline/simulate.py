"""Trace -> replays by the library's own timer and core on a virtual clock, for each of many settings.

Each combination of the values given is one setting.

    aiopurgatory pipeline simulate --ticks 1,10 --wheel-sizes 20,64 OUT/trace OUT

The results are in OUT/simulations, a row per setting. Replays are the one part of the pipeline that runs Python on
Spark's workers: a replay is the library itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import astuple
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.replay import replay
from aiopurgatory.replay.target import Setting

from .generate import SCHEMA as TRACE

TICKS: Final = (1.0, 10.0)
WHEEL_SIZES: Final = (20, 64)
PURGE_INTERVALS: Final = (0, 1_000)
_SETTING: Final = "tick_ms DOUBLE, wheel_size BIGINT, purge_interval BIGINT"
_RULE: Final = (
    "arrival_us >= 0 AND size(keys) > 0 AND size(array_compact(keys)) = size(keys) AND timeout_us >= 0 "
    "AND coalesce(completion_us, 0) >= 0"
)
_STEPS: Final = ("cascades", "wakeups", "heap_operations", "purges", "purge_visits")
_FOUND: Final = ("wakeups_in_trace", "peak_pending", "peak_bytes")
_COUNTS: Final = ("operations", "expired", "left", "span_us", *_STEPS, *_FOUND, "late_p99_us")
#: A setting, and the counts of its replay. Operations *left* have no deadline, or one over a day after the trace.
SCHEMA: Final = ", ".join([_SETTING, *(f"{name} BIGINT" for name in _COUNTS)])


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("trace", help="folder written by generate")
    parser.set_defaults(needs={"trace": ("", "there is no trace in {}: give the folder that generate has printed")})
    parser.add_argument("out", help="folder for the results")
    grid_arguments(parser)


def grid_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the values to combine."""
    about = "simulate: ticks (default: 1,10)"
    parser.add_argument("--ticks", type=numbers, default=TICKS, metavar="MS,...", help=about)
    about = "simulate: buckets per level (default: 20,64)"
    parser.add_argument("--wheel-sizes", type=numbers, default=WHEEL_SIZES, metavar="N,...", help=about)
    about = "simulate: purge intervals (default: 0,1000)"
    parser.add_argument("--purge-intervals", type=numbers, default=PURGE_INTERVALS, metavar="N,...", help=about)


def numbers(text: str) -> tuple[Any, ...]:  # argparse names the function in its error
    return tuple(json.loads(f"[{text}]"))


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Simulate, and print where the results are.

    Raises: PurgatoryError: a setting is refused, or the trace is not valid.
    """
    settings = grid(args.ticks, args.wheel_sizes, args.purge_intervals)
    requests = spark.read.schema(TRACE).parquet(args.trace)
    replays(requests, settings).write.mode("overwrite").parquet(f"{args.out}/simulations")
    print(f"{len(settings)} settings: {args.out}/simulations")


def grid(
    ticks_ms: Sequence[float] = TICKS,
    wheel_sizes: Sequence[int] = WHEEL_SIZES,
    purge_intervals: Sequence[int] = PURGE_INTERVALS,
) -> list[Setting]:
    """Return every combination once. Raises: PurgatoryError: a setting is refused."""
    combinations = product(ticks_ms, wheel_sizes, purge_intervals)
    try:
        return list(dict.fromkeys(Setting(*each) for each in combinations))
    except (TypeError, ValueError) as error:
        raise PurgatoryError(str(error)) from None


def replays(requests: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """A trace -> SCHEMA, by a replay of all of it for each of *settings*, each a task of its own.

    It fails when it runs, if a row of the trace breaks a rule. An empty trace has no rows here.

    Cost: per setting, about the CPU time that the purgatory itself needs, and the memory for one copy of the trace.
    """
    rows = [(number, float(tick), *rest) for number, (tick, *rest) in enumerate(map(astuple, settings))]
    numbered = requests.sparkSession.createDataFrame(rows, f"number INT, {_SETTING}")
    wrong = F.concat(F.lit("a row of the trace breaks a rule: "), F.to_json(F.struct(*requests.columns)))
    checked = requests.where(F.when(F.expr(_RULE), F.lit(True)).otherwise(F.raise_error(wrong).isNull()))
    # Four times as many partitions as settings: few of them then hold two.
    both = numbered.crossJoin(checked).repartition(4 * len(settings), "number")
    return both.groupBy("number").applyInArrow(_replayed, SCHEMA)


def _replayed(rows: pa.Table) -> pa.Table:
    """One setting beside each row of the trace -> the row of SCHEMA."""
    found = rows.select([*Setting.__dataclass_fields__]).slice(0, 1)
    for name, count in measures(rows.sort_by("arrival_us"), Setting(**found.to_pylist()[0])).items():
        found = found.append_column(name, pa.array([count]))
    return found


def measures(trace: pa.Table, setting: Setting) -> dict[str, int]:
    """Replay *trace*. Returns: the columns of the results that follow from it, by name."""
    found = replay(trace, setting)
    arrival_us = trace["arrival_us"].to_numpy()
    expired = int(found.expired.sum())
    late = found.lateness_us if expired else np.zeros(1, np.int64)
    return {
        "operations": len(arrival_us),
        "expired": expired,
        "left": int((found.ended_us < 0).sum()),
        "span_us": int(arrival_us[-1] - arrival_us[0]),
        **{name: found.counts[name] for name in _STEPS},
        **{name: getattr(found, name) for name in _FOUND},
        "late_p99_us": int(np.quantile(late, 0.99, method="inverted_cdf")),
    }
