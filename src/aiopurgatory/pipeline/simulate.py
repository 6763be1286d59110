"""Replays a trace through the library's own timer and core on a virtual clock, once for each of many settings.

Every combination of the values given is one setting, and the old purgatory is there, too, as Kafka had it up to 0.8.
Shards are the processes of a fleet: each has a purgatory of its own, and the operations whose first key is its share.

    aiopurgatory pipeline simulate --ticks 1,10 --wheel-sizes 20,64 OUT/trace OUT

The results are in OUT/simulations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from itertools import pairwise, product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .replay.replay import replay
from .replay.settings import NEW, OLD, Setting
from .spark.session import session
from .workload.trace import SCHEMA

_SETTING: Final = "design STRING, tick_ms DOUBLE, wheel_size INT, purge_interval INT, timeout_ms DOUBLE"
_PACKED: Final = "shard INT, piece INT, payload BINARY"
#: A row per setting and shard.
RESULT: Final = (
    f"{_SETTING}, shard INT, "
    # in the trace, and how they ended; those left wait without a deadline, or for another day
    "operations BIGINT, completed BIGINT, expired BIGINT, left BIGINT, span_us BIGINT, "
    "cascades BIGINT, wakeups BIGINT, wakeups_in_trace BIGINT, heap_operations BIGINT, purges BIGINT, "
    "purge_visits BIGINT, late_p50_us BIGINT, late_p99_us BIGINT, late_max_us BIGINT, peak_pending BIGINT, "
    "peak_listed BIGINT, peak_bytes BIGINT"
)
_RESULT_SCHEMA: Final = pa.schema(
    [
        (name, {"STRING": pa.string(), "DOUBLE": pa.float64(), "INT": pa.int32(), "BIGINT": pa.int64()}[kind])
        for name, kind in (column.split() for column in RESULT.split(", "))
    ]
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("trace", help="what generate wrote")
    parser.add_argument("out", help="folder of the results")
    parser.add_argument("--ticks", type=_several(float), default=[1.0, 10.0], metavar="MS,...")
    parser.add_argument("--wheel-sizes", type=_several(int), default=[20, 64], metavar="N,...")
    parser.add_argument("--purge-intervals", type=_several(int), default=[0, 1000], metavar="N,...")
    parser.add_argument(
        "--timeouts", type=_several(float), default=[], metavar="MS,...", help="for all, beside what the trace says"
    )
    parser.add_argument(
        "--old", type=_several(int), default=[1000, 10000], metavar="N,...", help="purge intervals of the old one"
    )
    parser.add_argument("--shards", type=int, default=1, help="processes that share the load (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Simulate, and say where the results are."""
    settings = grid(args.ticks, args.wheel_sizes, args.purge_intervals, [None, *args.timeouts], args.old)
    with session("simulate", scratch=args.out, master=args.master, memory=args.memory) as spark:
        found = simulate(spark.read.parquet(args.trace), settings, shards=args.shards)
        found.repartition(1).write.mode("overwrite").parquet(f"{args.out}/simulations")
    print(f"{len(settings)} settings of {args.shards} processes are in {args.out}/simulations")


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
    old_purge_intervals: Sequence[int] = (),
) -> list[Setting]:
    """Every combination, and the old purgatory with each timeout."""
    new = product([NEW], ticks_ms, wheel_sizes, purge_intervals, timeouts_ms)
    old = product([OLD], [None], [None], old_purge_intervals, timeouts_ms)
    return list(dict.fromkeys(Setting(*each) for each in (*new, *old)))


def simulate(trace: DataFrame, settings: Sequence[Setting], *, shards: int = 1) -> DataFrame:
    """What each of *settings* makes of *trace*; a row per setting and shard, as RESULT says.

    Args: shards: processes that share the load.
    Raises: ValueError: no settings, or less than one shard.
    Cost: for each setting about what the purgatories themselves need for it; the trace goes over the wire once each.
    """
    if not settings:
        raise ValueError("settings must be at least one, got none")
    if shards < 1:
        raise ValueError(f"shards must be >= 1, got {shards}")
    # The slowest first, so that no core is left with one of them at the end.
    slowest_first = sorted(settings, key=lambda each: (each.purge_interval == 0, each.purge_interval, each.design))
    rows = [(number, *astuple(setting)) for number, setting in enumerate(slowest_first)]
    setups = trace.sparkSession.createDataFrame(rows, f"number INT, {_SETTING}")
    return (
        pack(trace, shards)
        .crossJoin(F.broadcast(setups))
        .repartitionById(len(settings) * shards, F.col("number") * shards + F.col("shard"))
        .mapInArrow(_replay_one, RESULT)
    )


def pack(trace: DataFrame, shards: int) -> DataFrame:
    """*trace* by shard, in order, thousands of requests to a row: so it is cheap to send around for every setting."""
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


def _replay_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pieces of one setting and shard -> its row."""
    pieces: dict[int, pa.Table] = {}
    first: dict[str, Any] = {}
    for batch in batches:
        for row in batch.to_pylist():
            pieces[row["piece"]] = pa.ipc.open_stream(row.pop("payload")).read_all()
            first = row
    if not pieces:
        return
    setting = Setting(**{name: first[name] for name in Setting.__dataclass_fields__})
    trace = pa.concat_tables([pieces[number] for number in sorted(pieces)])
    row = {**first, **measures(trace, setting)}
    yield pa.RecordBatch.from_pylist([{name: row[name] for name in _RESULT_SCHEMA.names}], schema=_RESULT_SCHEMA)


def measures(trace: pa.Table, setting: Setting) -> dict[str, int]:
    """The columns of RESULT that a replay of *trace* gives, by name."""
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
        "peak_listed": found.peak_listed,
        "peak_bytes": found.peak_bytes,
    }
