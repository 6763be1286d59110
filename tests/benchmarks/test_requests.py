"""A trace as the driver wants it."""

from __future__ import annotations

import pyarrow as pa
from workload.requests import as_requests
from workload.traces import SCHEMA


def test_as_requests_null_or_late_completion_is_none() -> None:
    columns = {
        "arrival_us": [0, 5, 9],
        "keys": [[1, 2], [3], []],
        "completion_us": [4_999, None, 200_000],
        "timeout_us": [5_000, 5_000, 200_000],
    }
    assert as_requests(pa.table(columns, schema=SCHEMA)) == [((1, 2), 0.005, 4), ((3,), 0.005, None), ((), 0.2, None)]
