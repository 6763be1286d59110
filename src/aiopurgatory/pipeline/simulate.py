"""Trace -> replays by the library's own timer and core on a virtual clock, for each of many settings.

Each combination of the values given is one setting. With N shards, the trace is divided by first key among N processes
with a purgatory each.

    aiopurgatory pipeline simulate --ticks 1,10 --wheel-sizes 20,64 OUT/trace OUT

The results are in OUT/simulations/simulations.parquet, which is replaced as a whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise, product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.arguments import require_int
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.replay import replay
from aiopurgatory.replay.settings import Setting

from .spark.folders import literal
from .spark.session import stage_session
from .workload import simulations
from .workload.trace import SCHEMA, require_valid

_PACKED: Final = "shard INT, piece INT, payload BINARY"
_SPARK_TYPES: Final = {pa.string(): "STRING", pa.float64(): "DOUBLE", pa.int64(): "BIGINT"}
#: The schema of the results, for Spark.
RESULT: Final = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in simulations.SCHEMA)


class SimulationError(PurgatoryError):
    """A setting is refused, or the trace cannot be read."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("trace", help="folder written by generate")
    parser.add_argument("out", help="folder for the results")
    parser.add_argument(
        "--ticks", type=_several(float), default=[1.0, 10.0], metavar="MS,...", help="ticks (default: 1,10)"
    )
    parser.add_argument(
        "--wheel-sizes",
        type=_several(int),
        default=[20, 64],
        metavar="N,...",
        help="buckets per level (default: 20,64)",
    )
    parser.add_argument(
        "--purge-intervals",
        type=_several(int),
        default=[0, 1000],
        metavar="N,...",
        help="purge intervals (default: 0,1000)",
    )
    parser.add_argument(
        "--timeouts",
        type=_several(float),
        default=[],
        metavar="MS,...",
        help="also simulate with one timeout for all operations (default: only with each operation's own)",
    )
    parser.add_argument("--shards", type=int, default=1, help="processes that share the load (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Simulate, and print where the results are.

    Raises: SimulationError: a setting is refused, or the trace cannot be read. TraceError: the trace is not valid.
    """
    try:
        settings = grid(args.ticks, args.wheel_sizes, args.purge_intervals, [None, *args.timeouts])
        require_simulation(settings, args.shards)
    except (TypeError, ValueError) as error:
        raise SimulationError(str(error)) from None
    with stage_session("simulate", args) as spark:
        folder = simulate_folder(spark, args.trace, args.out, settings, shards=args.shards)
    processes = "1 process" if args.shards == 1 else f"{args.shards} processes"
    print(f"{len(settings)} settings, {processes} each: {folder}")


def simulate_folder(spark: SparkSession, trace: str, out: str, settings: Sequence[Setting], *, shards: int = 1) -> str:
    """Simulate the trace in the folder *trace*. Returns: the folder in *out* that now has the simulations.

    Raises: SimulationError: *trace* cannot be read. TraceError: it is empty, or no valid trace.
    """
    try:
        requests = spark.read.parquet(literal(trace))
    except PySparkException:
        raise SimulationError(f"trace must be a folder that generate has written, got {trace}") from None
    require_valid(requests)
    folder = f"{out}/simulations"
    simulations.write(simulate(requests, settings, shards=shards).toArrow(), folder)
    return folder


def _several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def parse(text: str) -> list[Any]:
        return [kind(each) for each in text.split(",")] if text else []

    parse.__name__ = f"list of {kind.__name__}"
    return parse


def grid(
    ticks_ms: Sequence[float] = (1.0,),
    wheel_sizes: Sequence[int] = (20,),
    purge_intervals: Sequence[int] = (0,),
    timeouts_ms: Sequence[float | None] = (None,),
) -> list[Setting]:
    """Return every combination once. Raises: TypeError, ValueError: a setting is refused."""
    combinations = product(ticks_ms, wheel_sizes, purge_intervals, timeouts_ms)
    return list(dict.fromkeys(Setting(*each) for each in combinations))


def require_simulation(settings: Sequence[Setting], shards: int) -> None:
    """Raises: TypeError, ValueError: there are no settings, or less than one shard."""
    if not settings:
        raise ValueError("settings must be at least one, got none")
    require_int("shards", shards, 1)


def simulate(trace: DataFrame, settings: Sequence[Setting], *, shards: int = 1) -> DataFrame:
    """Replay *trace* with each of *settings*. Returns: a row per setting and shard, with the columns of RESULT.

    Args: shards: processes that share the load.
    Raises: TypeError, ValueError: no settings, or less than one shard.
    Cost: per setting, about the CPU time that the purgatory itself needs, and one transfer of the trace to a task.
    """
    require_simulation(settings, shards)
    # The slowest first, so that no core is left with one of them at the end.
    slowest_first = sorted(settings, key=lambda each: (each.purge_interval == 0, each.purge_interval))

    def replay_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _replay_one(batches, slowest_first)

    numbers = trace.sparkSession.range(len(settings)).select(F.col("id").cast("int").alias("number"))
    return (
        pack(trace, shards)
        .crossJoin(F.broadcast(numbers))
        .repartitionById(len(settings) * shards, F.col("number") * shards + F.col("shard"))
        .mapInArrow(replay_one, RESULT)
    )


def pack(trace: DataFrame, shards: int) -> DataFrame:
    """Pack *trace* by shard and in order, thousands of requests to a row, to send it cheaply once per setting."""
    return (
        trace.select(F.pmod(F.hash(F.col("keys")[0]), F.lit(shards)).alias("shard"), *SCHEMA.names)
        .repartition(shards, "shard")
        # By all columns: requests of the same microsecond come in the same order, however the trace was read.
        .sortWithinPartitions("shard", *SCHEMA.names)
        .mapInArrow(_pack, _PACKED)
    )


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    piece = 0
    for batch in batches:
        numbers = batch.column("shard").to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(bounds):
            if begin == end:
                continue
            requests = pa.Table.from_batches([batch.slice(begin, end - begin).select(SCHEMA.names)]).cast(SCHEMA)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SCHEMA) as stream:
                stream.write_table(requests)
            yield pa.record_batch(
                {
                    "shard": pa.array([numbers[begin]], pa.int32()),
                    "piece": pa.array([piece], pa.int32()),
                    "payload": pa.array([sink.getvalue().to_pybytes()], pa.binary()),
                }
            )
            piece += 1


def _replay_one(batches: Iterator[pa.RecordBatch], settings: Sequence[Setting]) -> Iterator[pa.RecordBatch]:
    """Replay the pieces of one setting and shard. Yields: its row."""
    pieces: dict[int, pa.Table] = {}
    number = shard = 0
    for batch in batches:
        for row in batch.to_pylist():
            pieces[row["piece"]] = pa.ipc.open_stream(row["payload"]).read_all()
            number, shard = row["number"], row["shard"]
    if not pieces:
        return
    setting = settings[number]
    found = measures(pa.concat_tables([pieces[piece] for piece in sorted(pieces)]), setting)
    yield pa.RecordBatch.from_pylist([{**asdict(setting), "shard": shard, **found}], schema=simulations.SCHEMA)


def measures(trace: pa.Table, setting: Setting) -> dict[str, int]:
    """Replay *trace*. Returns: the columns of RESULT that follow from it, by name."""
    found = replay(trace, setting)
    arrival_us = trace["arrival_us"].to_numpy()
    expired = int(found.expired.sum())
    left = int((found.ended_us < 0).sum())
    late = found.lateness_us if expired else np.zeros(1, np.int64)
    p50, p99, most = np.quantile(late, [0.5, 0.99, 1.0], method="inverted_cdf").tolist()
    return {
        "operations": len(arrival_us),
        "completed": len(arrival_us) - expired - left,
        "expired": expired,
        "left": left,
        "span_us": int(arrival_us[-1] - arrival_us[0]),
        **found.counts,
        "wakeups_in_trace": found.wakeups_in_trace,
        "late_p50_us": p50,
        "late_p99_us": p99,
        "late_max_us": most,
        "peak_pending": found.peak_pending,
        "peak_watched": found.peak_watched,
        "peak_bytes": found.peak_bytes,
    }
