"""Trace -> replays by the library's own timer and core on a virtual clock, for each of many settings.

Each combination of the values given is one setting.

    aiopurgatory pipeline simulate --ticks 1,10 --wheel-sizes 20,64 OUT/trace OUT

The results are in OUT/simulations/simulations.parquet, which is replaced as a whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.replay import replay
from aiopurgatory.replay.settings import Setting

from .lists import counts, milliseconds
from .spark.folders import absolute
from .spark.session import stage_session
from .spark.tasks import Spark, spread
from .workload import simulations
from .workload.trace import read_trace

#: Up to so many operations, over all settings, are replayed in this process: it takes about as long as Spark's start.
AT_HOME: Final = 500_000


class SimulationError(PurgatoryError):
    """A setting is refused."""


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


def run(args: argparse.Namespace) -> None:
    """Simulate, and print where the results are.

    Raises: SimulationError: a setting is refused. TraceError: the trace is not valid.
    """
    try:
        settings = grid(args.ticks, args.wheel_sizes, args.purge_intervals, [None, *args.timeouts])
    except (TypeError, ValueError) as error:
        raise SimulationError(str(error)) from None
    with stage_session("simulate", args) as spark:
        folder = simulate_folder(spark, args.trace, args.out, settings)
    print(f"{len(settings)} settings: {folder}")


def simulate_folder(spark: Spark, trace: str, out: str, settings: Sequence[Setting]) -> str:
    """Simulate the trace in the folder *trace*. Returns: the folder in *out* that now has the simulations.

    Raises: TraceError: *trace* is empty, or no valid trace.
    Cost: per setting, about the CPU time that the purgatory itself needs, and reading the trace once.
    """
    trace = absolute(trace)
    operations = len(read_trace(trace))  # says what is wrong before any task begins
    # The slowest first, so that no core is left with one of them at the end.
    slowest_first = sorted(settings, key=lambda each: (each.purge_interval == 0, each.purge_interval))
    groups = [slowest_first] if operations * len(settings) <= AT_HOME else [[setting] for setting in slowest_first]
    rows = [row for found in spread(spark, partial(_replay_each, trace), groups) for row in found]
    folder = f"{absolute(out)}/simulations"
    simulations.write(pa.Table.from_pylist(rows, simulations.SCHEMA), folder)
    return folder


def _replay_each(folder: str, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    trace = read_trace(folder)
    return [{**asdict(setting), **measures(trace, setting)} for setting in settings]


def grid(
    ticks_ms: Sequence[float] = (1.0,),
    wheel_sizes: Sequence[int] = (20,),
    purge_intervals: Sequence[int] = (0,),
    timeouts_ms: Sequence[float | None] = (None,),
) -> list[Setting]:
    """Return every combination once. Raises: TypeError, ValueError: a setting is refused."""
    combinations = product(ticks_ms, wheel_sizes, purge_intervals, timeouts_ms)
    return list(dict.fromkeys(Setting(*each) for each in combinations))


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
        **found.counts,
        "wakeups_in_trace": found.wakeups_in_trace,
        "late_p99_us": int(np.quantile(late, 0.99, method="inverted_cdf")),
        "peak_pending": found.peak_pending,
        "peak_bytes": found.peak_bytes,
    }
