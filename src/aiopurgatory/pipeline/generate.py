"""Make a trace of any size from a model, or from one of the two workloads of Kafka's TestPurgatoryPerformance.

The same seed gives the same trace on any number of machines. A trace consists of blocks of a fixed size. The random
numbers of a block come from the seed and the block's number. A longer trace begins like a shorter one.

    aiopurgatory pipeline generate --workload few --rows 1000000 OUT
    aiopurgatory pipeline generate --model OUT/model.json --purgatory fetch --rows 1000000 OUT

The trace is in OUT/trace.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, log
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .spark.folders import absolute, remove, write_table
from .spark.session import stage_session
from .spark.tasks import Spark, spread
from .workload.model import HOURS, WORKLOADS, ModelError, Workload, read_model
from .workload.trace import NO_TIMEOUT_US, SCHEMA, TraceError

Array = np.ndarray[Any, np.dtype[Any]]

#: Requests in a block. Another number gives other traces.
BLOCK: Final = 50_000
BLOCKS_PER_FILE: Final = 20
HOUR_US: Final = 3_600_000_000
#: Each part has its own random generator, so that it does not depend on how many numbers another part draws.
ARRIVALS, KINDS, TIMES, TIMEOUTS, KEY_COUNTS, KEYS, BLOCK_ENDS = range(7)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("out", help="folder for the trace")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, help="model.json, written by fit")
    source.add_argument(
        "--workload", choices=WORKLOADS, help="a workload of Kafka's benchmark: few or many requests expire"
    )
    parser.add_argument("--purgatory", help="only this purgatory of the model (default: all)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="requests in the trace (default: %(default)s)")
    parser.add_argument("--rate", type=float, help="requests per second on average (default: the model's)")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another trace (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Generate, and print the path of the trace."""
    workloads = chosen(read_model(args.model) if args.model else [WORKLOADS[args.workload]], args.purgatory)
    with stage_session("generate", args) as spark:
        generate_folder(spark, workloads, args.rows, f"{args.out}/trace", seed=args.seed, rate=args.rate)
    print(f"{args.rows:,} requests are in {args.out}/trace")


def chosen(workloads: Sequence[Workload], purgatory: str | None) -> list[Workload]:
    """Return the workloads of *purgatory* (None: all). Raises: ModelError: there are none."""
    found = [workload for workload in workloads if purgatory in (None, workload.purgatory)]
    if not found:
        known = ", ".join(sorted({workload.purgatory for workload in workloads})) or "nothing"
        raise ModelError(f"purgatory must be one that the model knows ({known}), got {purgatory!r}")
    return found


def generate_folder(
    spark: Spark, workloads: Sequence[Workload], count: int, folder: str, *, seed: int = 1, rate: float | None = None
) -> None:
    """Make a trace of *count* requests in *folder*, in order of arrival over its files. Replaces an earlier trace.

    Args:
        workloads: mixed in proportion to their rates.
        count: requests in the trace.
        seed: of the random numbers (default: 1).
        rate: requests per second, on average over the hours of the day (default: the workloads' own).

    Raises: TraceError: an argument is out of its range.
    """
    blocks = Blocks(tuple(workloads), count, seed, rate)
    folder = absolute(folder)
    new = f"{folder}.new"
    remove(new)
    every = range(blocks.number)
    files = [every[first : first + BLOCKS_PER_FILE] for first in every[::BLOCKS_PER_FILE]]
    spread(spark, partial(_write, blocks, new), files)
    remove(folder)
    os.rename(new, folder)


def _write(blocks: Blocks, folder: str, numbers: range) -> None:
    table = pa.Table.from_batches([blocks.make(number) for number in numbers], schema=SCHEMA)
    write_table(f"{folder}/part-{numbers[0]:08}.parquet", table)


def generate_table(workloads: Sequence[Workload], count: int, *, seed: int = 1, rate: float | None = None) -> pa.Table:
    """Make the trace of generate_folder() in one table."""
    blocks = Blocks(tuple(workloads), count, seed, rate)
    return pa.Table.from_batches([blocks.make(number) for number in range(blocks.number)], schema=SCHEMA)


@dataclass(frozen=True)
class Blocks:
    """The blocks of one trace.

    Raises: TraceError: an argument is out of its range.
    """

    workloads: tuple[Workload, ...]
    count: int
    seed: int
    rate: float | None = None

    def __post_init__(self) -> None:
        if not self.workloads:
            raise TraceError("workloads must be at least one, got none")
        if self.count < 1:
            raise TraceError(f"count must be >= 1, got {self.count}")
        if self.seed < 0:
            raise TraceError(f"seed must be >= 0, got {self.seed}")
        if self.rate is not None and not 0 < self.rate < np.inf:
            raise TraceError(f"rate must be > 0 per second, got {self.rate}")

    @property
    def number(self) -> int:
        return ceil(self.count / BLOCK)

    def make(self, number: int) -> pa.RecordBatch:
        """Block *number*, cut off where the trace ends."""
        randomness = _Randomness(self.seed, number)
        arrivals = self._arrivals(randomness, number)
        picks = self._picks(randomness, arrivals)
        columns = _BlockColumns(BLOCK)
        for index, workload in enumerate(self.workloads):
            columns.fill(np.flatnonzero(picks == index), workload, randomness, index)
        return columns.batch(arrivals).slice(0, self.count - number * BLOCK)

    def _arrivals(self, randomness: _Randomness, number: int) -> Array:
        """Draw arrivals at one request per unit of time, then stretch that time by the rates.

        The sum of a block's exponential gaps has a gamma distribution. Given the sum, only the proportions of the gaps
        remain to be drawn. So a block can be made without the blocks before it.
        """
        start, end = _block_ends(self.seed, self.number)[number : number + 2]
        gaps = randomness.by(ARRIVALS).standard_exponential(BLOCK).cumsum()
        hours, arrived = self._hours(end)
        arrivals: Array = np.interp(start + gaps * ((end - start) / gaps[-1]), arrived, hours).astype(np.int64)
        return arrivals

    def _hours(self, end: float) -> tuple[Array, Array]:
        """Bounds of the hours in us, and the number of requests arrived by each; the last is beyond *end*."""
        per_hour = self._rates().sum(axis=0) * 3600
        if self.rate is not None:
            per_hour *= self.rate * 3600 / per_hour.mean()
        days = ceil(end / per_hour.sum()) + 1
        arrived = np.concatenate([[0.0], np.tile(per_hour, days).cumsum()])
        return np.arange(len(arrived)) * float(HOUR_US), arrived

    def _rates(self) -> Array:
        """By workload and hour, beginning with the first hour of the trace."""
        rates = np.array([workload.arrivals_per_second for workload in self.workloads])
        return np.roll(rates, -self.workloads[0].first_hour, axis=1)

    def _picks(self, randomness: _Randomness, arrivals: Array) -> Array:
        """The workload of each request, drawn in proportion to the rates in its hour."""
        if len(self.workloads) == 1:
            return np.zeros(BLOCK, np.int64)
        upto = self._rates().cumsum(axis=0)[:, arrivals // HOUR_US % HOURS]
        picks: Array = (randomness.by(KINDS).random(BLOCK) * upto[-1] >= upto[:-1]).sum(axis=0)
        return picks


class _Randomness:
    """The random numbers of one block."""

    def __init__(self, seed: int, block: int) -> None:
        self._seed = seed
        self._block = block

    def by(self, part: int, workload: int = 0) -> np.random.Generator:
        return np.random.default_rng([self._seed, part, self._block, workload])


class _BlockColumns:
    """The columns of one block."""

    def __init__(self, count: int) -> None:
        self._completion_us = np.zeros(count, np.int64)
        self._completes = np.ones(count, bool)
        self._timeout_us = np.zeros(count, np.int64)
        self._key_counts = np.zeros(count, np.int64)
        self._keys: list[tuple[Array, Array]] = []

    def fill(self, rows: Array, workload: Workload, randomness: _Randomness, index: int) -> None:
        times = randomness.by(TIMES, index)
        if workload.p50_ms is None:
            self._completes[rows] = False
        else:
            logs = times.standard_normal(len(rows)) * workload.sigma + log(workload.p50_ms * 1000)
            self._completion_us[rows] = np.exp(np.minimum(logs, log(NO_TIMEOUT_US)))
        if workload.at_once:
            at_once = rows[times.random(len(rows)) < workload.at_once]
            self._completes[at_once] = True
            self._completion_us[at_once] = 0
        timeouts = [
            NO_TIMEOUT_US if ms is None else round(min(ms * 1000, NO_TIMEOUT_US)) for ms, _ in workload.timeouts_ms
        ]
        self._timeout_us[rows] = _pick(timeouts, workload.timeouts_ms, randomness.by(TIMEOUTS, index), len(rows))
        counts = [number for number, _ in workload.key_counts]
        self._key_counts[rows] = _pick(counts, workload.key_counts, randomness.by(KEY_COUNTS, index), len(rows))
        self._keys.append((rows, _keys(workload, max(counts), len(rows), randomness.by(KEYS, index))))

    def batch(self, arrivals: Array) -> pa.RecordBatch:
        counts = self._key_counts
        widest = max(keys.shape[1] for _, keys in self._keys)
        chosen = np.empty((len(counts), widest), np.int64)
        for rows, keys in self._keys:
            chosen[rows, : keys.shape[1]] = keys
        offsets = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        flat = chosen.ravel() if (counts == widest).all() else chosen[np.arange(widest) < counts[:, None]]
        columns = [
            pa.array(arrivals),
            pa.ListArray.from_arrays(offsets, flat),
            pa.array(self._completion_us, mask=None if self._completes.all() else ~self._completes),
            pa.array(self._timeout_us),
        ]
        return pa.record_batch(columns, schema=SCHEMA)


def _keys(workload: Workload, widest: int, count: int, random: np.random.Generator) -> Array:
    """Distinct keys: the first by its popularity, the others its neighbours on a circle, each a random step further."""
    circle = max(workload.key_space, 2 * widest)
    if workload.zipf == 0:
        first = random.integers(0, workload.key_space, count)
    else:
        first = _cumulated(workload.key_space, workload.zipf).searchsorted(random.random(count), side="right")
    keys = np.empty((count, widest), np.int64)
    keys[:, 0] = first
    for column in range(1, widest):
        keys[:, column] = keys[:, column - 1] + random.integers(1, circle // widest, count)
    # Wrap by subtraction: ten times as fast as a remainder.
    np.subtract(keys, circle, out=keys, where=keys >= circle)
    return keys


@lru_cache(maxsize=8)
def _block_ends(seed: int, number: int) -> Array:
    gamma = np.random.default_rng([seed, BLOCK_ENDS]).gamma(BLOCK, size=number)
    return np.concatenate([[0.0], gamma.cumsum()])


@lru_cache(maxsize=8)
def _cumulated(key_space: int, zipf: float) -> Array:
    shares = np.arange(1, key_space + 1, dtype=np.float64) ** -zipf
    upto = shares.cumsum()
    upto /= upto[-1]
    return upto


def _pick(values: list[int], shares: Sequence[tuple[Any, float]], random: np.random.Generator, count: int) -> Array:
    if len(values) == 1:
        return np.full(count, values[0], np.int64)
    upto = np.cumsum([share for _, share in shares])
    picks: Array = upto[:-1].searchsorted(random.random(count) * upto[-1], side="right")
    return np.array(values, np.int64)[picks]
