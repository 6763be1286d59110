"""Traces of the workloads of Kafka's TestPurgatoryPerformance, made by numpy: a benchmark must not wait for a JVM.

``aiopurgatory pipeline generate`` makes traces of the same distributions, by Spark.
"""

from __future__ import annotations

from math import log
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aiopurgatory.pipeline.model import Workload

SCHEMA: Final = pa.schema(
    [
        pa.field("arrival_us", pa.int64(), nullable=False),
        pa.field("keys", pa.list_(pa.int64()), nullable=False),
        pa.field("completion_us", pa.int64()),
        pa.field("timeout_us", pa.int64(), nullable=False),
    ]
)
#: Longer than any deadline that a purgatory keeps: such an operation waits until it is completed.
NO_TIMEOUT_US: Final = 1 << 53
#: Each part has its own random generator, so that it does not depend on how many numbers another part draws.
_ARRIVALS, _TIMES, _KEYS = 0, 2, 6


def trace_of(workload: Workload, count: int, *, seed: int = 1, rate: float | None = None) -> pa.Table:
    """Make a trace of *count* requests, in order of arrival.

    Args:
        workload: with log-normal times, one timeout, one number of keys, and a constant rate, as model.FEW.
        count: requests in the trace.
        seed: of the random numbers (default: 1).
        rate: requests per second (default: the workload's own).
    """

    def random(part: int) -> np.random.Generator:
        return np.random.default_rng([seed, part, 0])

    per_second = rate or workload.arrivals_per_second[0]
    arrivals = random(_ARRIVALS).standard_exponential(count).cumsum() * (1e6 / per_second)
    # Continuous times, as there are 1,000 in the workload.
    low, middle, high = np.log(np.quantile(np.array(workload.completion_ms, float) * 1000, (0.25, 0.5, 0.75)))
    logs = random(_TIMES).standard_normal(count) * (high - low) / (2 * NormalDist().inv_cdf(0.75)) + middle
    ((timeout_ms, _),), ((each, _),) = workload.timeouts_ms, workload.key_counts
    generator, circle = random(_KEYS), max(int(workload.key_ranks[-1]), 2 * each)
    first = generator.integers(0, int(workload.key_ranks[-1]), count)
    steps = generator.integers(1, circle // each, (count, each - 1)).cumsum(axis=1)
    keys = (first[:, None] + np.concatenate([np.zeros((count, 1), np.int64), steps], axis=1)) % circle
    columns: list[Any] = [
        pa.array(arrivals.astype(np.int64)),
        pa.ListArray.from_arrays(np.arange(0, count * each + 1, each, dtype=np.int32), keys.ravel()),
        pa.array(np.exp(np.minimum(logs, log(NO_TIMEOUT_US))).astype(np.int64)),
        pa.array(np.full(count, round((timeout_ms or 0) * 1000))),
    ]
    return pa.table(columns, schema=SCHEMA)
