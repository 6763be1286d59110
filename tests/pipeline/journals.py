"""Journals for tests, in the journal's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.journal.schema import OPERATIONS, SCHEMA_VERSION, STATISTICS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def operation(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A row of the *number*-th operation, which completed after 20 ms; *changes* are other columns."""
    row = {
        "schema_version": SCHEMA_VERSION,
        "purgatory": "fetch",
        "instance": "host-1",
        "sequence": number,
        "kind": "DelayedFetch",
        "key_count": 1,
        "key_hash": 7,
        "key": None,
        "watched_at": NOON + timedelta(milliseconds=number),
        "waited_us": 20_000,
        "timeout_us": 500_000,
        "outcome": "completed",
        "lateness_us": None,
        "missed_trigger": False,
        "weight": 1.0,
    }
    return row | changes


def expired(number: int = 0, **changes: Any) -> dict[str, Any]:
    """The same, but it expired, 1 ms late."""
    late = {"outcome": "expired", "waited_us": 501_000, "lateness_us": 1_000}
    return operation(number, **(late | changes))


def snapshot(at: datetime = NOON, **changes: Any) -> dict[str, Any]:
    """A row of statistics; the counts are 0 but for *changes*."""
    row: dict[str, Any] = {field.name: 0 for field in STATISTICS if field.type == pa.int64()}
    row |= {"schema_version": SCHEMA_VERSION, "purgatory": "fetch", "instance": "host-1", "at": at}
    return row | changes


def write(
    journal: Path,
    rows: Sequence[Mapping[str, Any]],
    name: str = "host-1-0",
    *,
    table: str = "operations",
    at: datetime = NOON,
    schema: pa.Schema | None = None,
) -> Path:
    """One file of *rows* in the folder of the day and hour of *at*; returns its path."""
    schema = schema or {"operations": OPERATIONS, "statistics": STATISTICS}[table]
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    folder = journal / table / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=nullable), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"
