"""Trace -> replays by the library's own timer and core on a virtual clock, for each of many settings.

Each combination of the values given is one setting.

    aiopurgatory pipeline simulate --ticks 1,10 --wheel-sizes 20,64 OUT/trace OUT

The results are in OUT/simulations, a row per setting. Replays are the one part of the pipeline that runs Python on
Spark's workers: a replay is the library itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import astuple
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.replay import replay
from aiopurgatory.replay.settings import Setting

from .generate import SCHEMA as TRACE
from .generate import TraceError
from .session import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SETTING: Final = "tick_ms DOUBLE, wheel_size BIGINT, purge_interval BIGINT, timeout_ms DOUBLE"
_STEPS: Final = ("cascades", "wakeups", "heap_operations", "purges", "purge_visits")
_COUNTS: Final = (
    *("operations", "expired", "left", "span_us", *_STEPS),
    *("wakeups_in_trace", "late_p99_us", "peak_pending", "peak_bytes"),
)
#: A setting, and the counts of its replay. Operations *left* have no deadline, or one over a day after the trace.
SCHEMA: Final = ", ".join([_SETTING, *(f"{name} BIGINT" for name in _COUNTS)])
_COLUMNS: Final = [each.split()[0] for each in TRACE.split(", ")]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("trace", help="folder written by generate")
    parser.add_argument("out", help="folder for the results")
    for name, kind, default, about in (
        ("ticks", milliseconds, (1.0, 10.0), "ticks (default: 1,10)"),
        ("wheel-sizes", counts, (20, 64), "buckets per level (default: 20,64)"),
        ("purge-intervals", counts, (0, 1_000), "purge intervals (default: 0,1000)"),
        ("timeouts", milliseconds, (), "one timeout for all operations, too (default: only with each operation's own)"),
    ):
        unit = "MS,..." if kind is milliseconds else "N,..."
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=unit, help=about)


def milliseconds(text: str) -> tuple[float, ...]:  # argparse names the function in its error
    return tuple(float(each) for each in text.split(","))


def counts(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def run(args: argparse.Namespace) -> None:
    """Simulate, and print where the results are.

    Raises: PurgatoryError: a setting is refused. TraceError: the trace is not valid.
    """
    settings = grid(args.ticks, args.wheel_sizes, args.purge_intervals, [None, *args.timeouts])
    with session_of(args) as spark:
        requests = spark.read.schema(TRACE).parquet(args.trace)
        replays(requests, settings).write.mode("overwrite").parquet(f"{args.out}/simulations")
    print(f"{len(settings)} settings: {args.out}/simulations")


def grid(
    ticks_ms: Sequence[float] = (1.0, 10.0),
    wheel_sizes: Sequence[int] = (20, 64),
    purge_intervals: Sequence[int] = (0, 1_000),
    timeouts_ms: Sequence[float | None] = (None,),
) -> list[Setting]:
    """Return every combination once. Raises: PurgatoryError: a setting is refused."""
    combinations = product(ticks_ms, wheel_sizes, purge_intervals, timeouts_ms)
    try:
        return list(dict.fromkeys(Setting(*each) for each in combinations))
    except (TypeError, ValueError) as error:
        raise PurgatoryError(str(error)) from None


def replays(requests: DataFrame, settings: Sequence[Setting]) -> DataFrame:
    """A trace -> SCHEMA, by a replay of all of it for each of *settings*, each a task of its own.

    Raises, when it runs: TraceError: the trace is empty, or no valid trace.
    Cost: per setting, about the CPU time that the purgatory itself needs, and the memory for one copy of the trace.
    """
    rows = [(number, float(tick), *rest) for number, (tick, *rest) in enumerate(map(astuple, settings))]
    numbered = requests.sparkSession.createDataFrame(rows, f"number INT, {_SETTING}")
    # Four times as many partitions as settings: few of them then hold two.
    both = numbered.crossJoin(requests).repartition(4 * len(settings), "number")
    return both.groupBy("number").applyInArrow(_replayed, SCHEMA)


def _replayed(rows: pa.Table) -> pa.Table:
    """One setting beside each row of the trace -> the row of SCHEMA."""
    found = rows.select([*Setting.__dataclass_fields__]).slice(0, 1)
    for name, count in measures(in_order(rows), Setting(**found.to_pylist()[0])).items():
        found = found.append_column(name, pa.array([count]))
    return found


def in_order(rows: pa.Table) -> pa.Table:
    """Return the trace in *rows*, in order of arrival. Raises: TraceError: rows break a rule."""
    arrival, keys, completion, timeout = (rows[name].combine_chunks() for name in _COLUMNS)
    holds = {
        "arrival_us must be >= 0 and not null": pc.greater_equal(arrival, 0),
        "keys must be a list of at least one key, none of them null": _some_keys(keys),
        "completion_us must be >= 0, or null": pc.fill_null(pc.greater_equal(completion, 0), True),
        "timeout_us must be >= 0 and not null": pc.greater_equal(timeout, 0),
    }
    for rule, kept in holds.items():
        bad = len(kept) - (pc.sum(kept).as_py() or 0)
        if bad:
            raise TraceError(f"{rule}, got {bad:,} of {len(rows):,} rows that are not")
    return pa.table([arrival, keys, completion, timeout], _COLUMNS).sort_by("arrival_us")


def _some_keys(keys: pa.ListArray) -> Any:
    without_null = np.ones(len(keys), bool)
    without_null[pc.list_parent_indices(keys).filter(pc.is_null(pc.list_flatten(keys))).to_numpy()] = False
    return pc.and_kleene(pa.array(without_null), pc.greater(pc.list_value_length(keys), 0))


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
        "wakeups_in_trace": found.wakeups_in_trace,
        "late_p99_us": int(np.quantile(late, 0.99, method="inverted_cdf")),
        "peak_pending": found.peak_pending,
        "peak_bytes": found.peak_bytes,
    }
