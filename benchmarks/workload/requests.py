"""Convert a trace into the requests that the driver plays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

#: Its keys, its timeout in seconds, and the milliseconds to its completion (None: it times out first).
Request = tuple[tuple[int, ...], float, int | None]


def as_requests(table: pa.Table) -> list[Request]:
    """The data that the driver needs of each request, in a form that is cheap to read."""
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
