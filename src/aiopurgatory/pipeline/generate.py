"""Make a trace from a model, or from one of the two workloads of Kafka's TestPurgatoryPerformance.

The same seed gives the same trace on any machine. Memory: about 150 bytes per request, and 8 for each key that
one may have. Above 4 GB in all, it is refused.

    aiopurgatory pipeline generate --workload few --rows 1000000 OUT
    aiopurgatory pipeline generate --model OUT/model.json --purgatory fetch --rows 1000000 OUT

The trace is in OUT/trace.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import ceil, log
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .spark.folders import write_table
from .workload.model import HOURS, WORKLOADS, ModelError, Workload, read_model
from .workload.trace import NAME, NO_TIMEOUT_US, SCHEMA, TraceError

Array = np.ndarray[Any, np.dtype[Any]]

HOUR_US: Final = 3_600_000_000
#: Each part has its own random generator, so that it does not depend on how many numbers another part draws.
ARRIVALS, KINDS, TIMES, AT_ONCE, TIMEOUTS, KEY_COUNTS, KEYS = range(7)
_MEMORY: Final = 4_000_000_000


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
    trace = generate_table(workloads, args.rows, seed=args.seed, rate=args.rate)
    write_table(f"{args.out}/trace/{NAME}", trace)
    print(f"{args.rows:,} requests are in {args.out}/trace")


def chosen(workloads: Sequence[Workload], purgatory: str | None) -> list[Workload]:
    """Return the workloads of *purgatory* (None: all). Raises: ModelError: there are none."""
    found = [workload for workload in workloads if purgatory in (None, workload.purgatory)]
    if not found:
        known = ", ".join(sorted({workload.purgatory for workload in workloads})) or "nothing"
        raise ModelError(f"purgatory must be one that the model knows ({known}), got {purgatory!r}")
    return found


def generate_table(workloads: Sequence[Workload], count: int, *, seed: int = 1, rate: float | None = None) -> pa.Table:
    """Make a trace of *count* requests, in order of arrival.

    Args:
        workloads: mixed in proportion to their rates.
        count: requests in the trace.
        seed: of the random numbers (default: 1).
        rate: requests per second, on average over the hours of the day (default: the workloads' own).

    Raises: TraceError: an argument is out of its range.
    """
    if not workloads:
        raise TraceError("workloads must be at least one, got none")
    widest = max(number for workload in workloads for number, _ in workload.key_counts)
    most = _MEMORY // (150 + 8 * widest)
    if not 1 <= count <= most:
        raise TraceError(f"count must be from 1 to {most:,}, as requests have up to {widest:,} keys, got {count:,}")
    if seed < 0:
        raise TraceError(f"seed must be >= 0, got {seed}")
    if rate is not None and not 0 < rate < np.inf:
        raise TraceError(f"rate must be > 0 per second, got {rate}")
    # By workload and hour, beginning with the first hour of the trace.
    rates = np.roll([workload.arrivals_per_second for workload in workloads], -workloads[0].first_hour, axis=1)
    arrivals = _arrivals(rates.sum(axis=0), rate, _random(seed, ARRIVALS).standard_exponential(count).cumsum())
    upto = rates.cumsum(axis=0)[:, arrivals // HOUR_US % HOURS]
    picks = (_random(seed, KINDS).random(count) * upto[-1] >= upto[:-1]).sum(axis=0)
    completion, timeouts, key_counts = (np.zeros(count, np.int64) for _ in range(3))
    keys = np.empty((count, widest), np.int64)
    for index, workload in enumerate(workloads):
        rows = np.flatnonzero(picks == index)
        completion[rows] = _completion(workload, len(rows), seed, index)
        known = [(NO_TIMEOUT_US if ms is None else ms * 1000, share) for ms, share in workload.timeouts_ms]
        timeouts[rows] = _pick(known, _random(seed, TIMEOUTS, index), len(rows))
        key_counts[rows] = _pick(workload.key_counts, _random(seed, KEY_COUNTS, index), len(rows))
        own = _keys(workload, len(rows), _random(seed, KEYS, index))
        keys[rows, : own.shape[1]] = own
    offsets = np.concatenate([[0], key_counts.cumsum()]).astype(np.int32)
    flat = keys.ravel() if (key_counts == widest).all() else keys[np.arange(widest) < key_counts[:, None]]
    columns = [
        pa.array(arrivals),
        pa.ListArray.from_arrays(offsets, flat),
        pa.array(completion, mask=completion < 0),
        pa.array(timeouts),
    ]
    return pa.table(columns, schema=SCHEMA)


def _random(seed: int, part: int, workload: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, part, workload])


def _arrivals(per_second: Array, rate: float | None, units: Array) -> Array:
    """Stretch arrivals at one request per unit of time by the rates of the hours."""
    per_hour = per_second * 3600
    if rate is not None:
        per_hour *= rate * 3600 / per_hour.mean()
    days = ceil(units[-1] / per_hour.sum()) + 1
    arrived = np.concatenate([[0.0], np.tile(per_hour, days).cumsum()])
    arrivals: Array = np.interp(units, arrived, np.arange(len(arrived)) * float(HOUR_US)).astype(np.int64)
    return arrivals


def _completion(workload: Workload, count: int, seed: int, index: int) -> Array:
    """Return times to completion in us; -1: never."""
    if workload.p50_ms is None:
        found = np.full(count, -1)
    else:
        logs = _random(seed, TIMES, index).standard_normal(count) * workload.sigma + log(workload.p50_ms * 1000)
        found = np.exp(np.minimum(logs, log(NO_TIMEOUT_US))).astype(np.int64)
    found[_random(seed, AT_ONCE, index).random(count) < workload.at_once] = 0
    return found


def _keys(workload: Workload, count: int, random: np.random.Generator) -> Array:
    """Distinct keys: the first by its popularity, the others its neighbours on a circle, each a random step further."""
    widest = max(number for number, _ in workload.key_counts)
    circle = max(workload.key_space, 2 * widest)
    if workload.zipf == 0:
        first = random.integers(0, workload.key_space, count)
    else:
        upto = (np.arange(1, workload.key_space + 1, dtype=np.float64) ** -workload.zipf).cumsum()
        first = upto.searchsorted(random.random(count) * upto[-1], side="right")
    steps = random.integers(1, circle // widest, (count, widest - 1))
    keys: Array = (
        first[:, None] + np.concatenate([np.zeros((count, 1), np.int64), steps.cumsum(axis=1)], axis=1)
    ) % circle
    return keys


def _pick(pairs: Sequence[tuple[Any, float]], random: np.random.Generator, count: int) -> Array:
    """Draw the first of *pairs* by the second, its share."""
    values = np.array([round(min(value, NO_TIMEOUT_US)) for value, _ in pairs], np.int64)
    upto = np.cumsum([share for _, share in pairs])
    picks: Array = values[upto[:-1].searchsorted(random.random(count) * upto[-1], side="right")]
    return picks
