"""Traces: requests with their keys, their timeouts and the time to their completion; generated, or read from Parquet.

A trace is one Parquet file with a row per request, in order of arrival:

| column          | type        |                                                                          |
| --------------- | ----------- | ------------------------------------------------------------------------ |
| `arrival_us`    | int64       | microseconds since the trace began                                       |
| `keys`          | list<int64> | the ids of its watch keys                                                |
| `completion_us` | int64       | from its arrival to what completes it; null: nothing was seen to         |
| `timeout_us`    | int64       | how long it waits at most                                                |
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: Its keys, its timeout in seconds, and the milliseconds to its completion: None if its time runs out before.
Request = tuple[tuple[int, ...], float, int | None]

SCHEMA = pa.schema(
    [
        pa.field("arrival_us", pa.int64(), nullable=False),
        pa.field("keys", pa.list_(pa.int64()), nullable=False),
        pa.field("completion_us", pa.int64()),
        pa.field("timeout_us", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Workload:
    """How requests come and go: exponential gaps between arrivals, log-normal times to completion."""

    name: str
    p50_ms: float
    p75_ms: float
    timeout_ms: int = 200
    keys_each: int = 3
    #: How many keys there are.
    key_space: int = 100

    def generate(self, count: int, rate: float, seed: int = 1) -> pa.Table:
        """*count* requests that come at *rate* per second. The same seed gives the same trace.

        Its latencies do not depend on the rate, so that points of one figure differ in nothing else.
        """
        latency, arrival, keys = (np.random.default_rng([seed, part]) for part in range(3))
        # The seed's benchmark gives a log-normal distribution by two of its percentiles.
        sigma = log(self.p75_ms / self.p50_ms) / NormalDist().inv_cdf(0.75)
        completion = latency.lognormal(log(self.p50_ms * 1000), sigma, count).astype(np.int64)
        gaps = arrival.exponential(1e6 / rate, count)
        first = keys.integers(0, self.key_space, (count, 1))
        # distinct: neighbours on a circle, each a random step further
        steps = keys.integers(1, self.key_space // self.keys_each, (count, self.keys_each - 1)).cumsum(axis=1)
        chosen = np.hstack([first, (first + steps) % self.key_space]).astype(np.int64)
        offsets = np.arange(count + 1, dtype=np.int32) * self.keys_each
        columns = {
            "arrival_us": gaps.cumsum().astype(np.int64),
            "keys": pa.ListArray.from_arrays(offsets, chosen.ravel()),
            "completion_us": completion,
            "timeout_us": np.full(count, self.timeout_ms * 1000),
        }
        return pa.table(columns, schema=SCHEMA)


#: The two workloads of Kafka's benchmark: 8 and 50 % of the requests run out of time.
FEW = Workload("few", p50_ms=20, p75_ms=60)
MANY = Workload("many", p50_ms=200, p75_ms=400)
WORKLOADS = {workload.name: workload for workload in (FEW, MANY)}


def write_trace(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def read_trace(path: Path) -> pa.Table:
    """Raises: ValueError: no trace, or out of order."""
    table = pq.read_table(path)
    missing = set(SCHEMA.names) - set(table.column_names)
    if missing:
        raise ValueError(f"{path} is no trace: it has no column {', '.join(sorted(missing))}")
    table = table.select(SCHEMA.names).cast(SCHEMA)
    arrivals = table["arrival_us"].to_numpy()
    if (np.diff(arrivals) < 0).any():
        raise ValueError(f"{path} must be in order of arrival_us")
    return table


def as_requests(table: pa.Table) -> list[Request]:
    """What the driver needs of each request, in a form that costs it nothing to read."""
    keys_known: dict[tuple[int, ...], tuple[int, ...]] = {}
    timeouts_known: dict[float, float] = {}
    found: list[Request] = []
    # In pieces, so that little of the memory that a competitor takes is found lying around.
    for piece in table.to_batches(max_chunksize=10_000):
        keys = piece["keys"]
        flat, offsets = keys.flatten().to_numpy().tolist(), (keys.offsets.to_numpy() - keys.offsets[0].as_py()).tolist()
        timeout_us = piece["timeout_us"].to_numpy()
        completion_us = piece["completion_us"].fill_null(np.iinfo(np.int64).max).to_numpy()
        latency_ms = np.where(completion_us < timeout_us, completion_us // 1000, -1).tolist()
        for (begin, end), timeout, latency in zip(
            pairwise(offsets), (timeout_us / 1e6).tolist(), latency_ms, strict=True
        ):
            each = tuple(flat[begin:end])
            known = keys_known.setdefault(each, each), timeouts_known.setdefault(timeout, timeout)
            found.append((*known, None if latency < 0 else latency))
    return found
