"""Make a journal as fast as numpy and Arrow can, with the files that ``aiopurgatory.journal`` would write.

Requests of 2 purgatories and 3 kinds arrive evenly over a span of time at 2 instances. Most complete within
milliseconds, a tenth expires after half a second, and 1 in 50 is cancelled. There are 1,000 keys; the hottest has a
tenth of all requests. Rows are in the order in which operations ended. The same arguments give the same journal.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aiopurgatory.journal import schema

#: 2026-11-21, in microseconds.
MIDNIGHT = 1_795_219_200_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
PURGATORIES = ("fetch", "produce")
KINDS = ("Delayed0", "Delayed1", "Delayed2")
OUTCOMES = ("completed", "expired", "cancelled", "failed")
KEYS = 1_000
TIMEOUT = 500_000
#: Rows drawn at once. A multiple of the rows of a file, or the same rows would not be in files of any size.
BLOCK = 250_000
#: The options of the journal's own writer.
WRITER: dict[str, Any] = {
    "compression": "lz4",
    "store_schema": False,
    "use_dictionary": [
        *("schema_version", "purgatory", "instance", "kind", "key_count"),
        *("key_hash", "key", "timeout_us", "outcome", "weight"),
    ],
    "column_encoding": dict.fromkeys(["sequence", "watched_at", "waited_us", "lateness_us"], "DELTA_BINARY_PACKED"),
}


@dataclass(frozen=True)
class Shape:
    """Args: rows_per_file: divides BLOCK. span: seconds, a day at most, over which the operations end."""

    rows: int
    rows_per_file: int = BLOCK
    span: float = 86_400.0
    instances: int = 2
    #: Seconds between two snapshots of statistics.
    snapshots: float = 10.0
    #: After MIDNIGHT. The same shape has other rows on another day.
    day: int = 0


def make(folder: Path, shape: Shape) -> int:
    """Write the journal into *folder*; return the size of its files in bytes."""
    for number in range(shape.instances):
        rows = shape.rows // shape.instances + (number < shape.rows % shape.instances)
        _write_operations(folder, shape, number, rows)
        table = _statistics(shape, number, rows)
        begun = MIDNIGHT + shape.day * DAY
        _write(folder / "statistics", f"host-{number}-000001", table, begun, compression="lz4", store_schema=False)
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _write_operations(folder: Path, shape: Shape, instance: int, rows: int) -> None:
    files = 0
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        # A little off midnight, so that no operation begins the day before or ends the day after.
        begin, end = (10 * SECOND + (shape.span - 20) * SECOND * row / rows for row in (first, first + count))
        begin, end = begin + shape.day * DAY, end + shape.day * DAY
        block = _operations(instance, shape.day * rows + first, count, (int(begin), int(end)))
        ended = block.column("watched_at").cast(pa.int64()).to_numpy() + block.column("waited_us").to_numpy()
        for at in range(0, count, shape.rows_per_file):
            files += 1
            table, name = block.slice(at, shape.rows_per_file), f"host-{instance}-{files:06}"
            _write(folder / "operations", name, table, int(ended[at]), **WRITER)


def _operations(instance: int, first: int, count: int, between: tuple[int, int]) -> pa.Table:
    """Rows *first* and the following of an instance, which end *between* these microseconds after midnight."""
    draw = np.random.default_rng([instance, first])
    ended = MIDNIGHT + np.sort(draw.integers(*between, count))
    chance = draw.random(count)
    outcome = np.where(chance < 0.1, 1, np.where(chance < 0.98, 0, 2)).astype("i4")
    expired = outcome == 1
    late = draw.integers(0, 2_000, count)
    waited = np.where(expired, TIMEOUT + late, np.minimum(draw.lognormal(0, 1, count) * 15_000, TIMEOUT).astype("i8"))
    series = draw.integers(0, len(PURGATORIES) * len(KINDS), count).astype("i4")
    key = np.floor(KEYS * draw.random(count) ** 3).astype("i8")
    columns = {
        "schema_version": np.full(count, schema.SCHEMA_VERSION, "i2"),
        "purgatory": _named(series % 2, PURGATORIES),
        "instance": _named(np.zeros(count, "i4"), [f"host-{instance}"]),
        "sequence": np.arange(first, first + count),
        "kind": _named(series // 2, KINDS),
        "key_count": np.ones(count, "i4"),
        "key_hash": (key + 1) * -7_046_029_254_386_353_131,  # wraps around, and so is spread over 64 bits
        "key": pa.nulls(count, pa.string()),
        "watched_at": pa.array(ended - waited).cast(schema.OPERATIONS.field("watched_at").type),
        "waited_us": waited,
        "timeout_us": np.full(count, TIMEOUT, "i8"),
        "outcome": _named(outcome, OUTCOMES),
        "lateness_us": pa.array(late, mask=~expired),
        "missed_trigger": (chance > 0.979) & (chance < 0.98),
        "weight": np.ones(count),
    }
    arrays = [pa.array(columns[name]) for name in schema.OPERATIONS.names]
    fields = [field.with_type(array.type) for field, array in zip(schema.OPERATIONS, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, schema.OPERATIONS.metadata))


def _statistics(shape: Shape, instance: int, rows: int) -> pa.Table:
    """Snapshots of both purgatories of an instance: counters grow evenly."""
    count = max(2, int(shape.span / shape.snapshots))
    at = np.repeat((np.arange(count) * shape.snapshots * SECOND).astype("i8"), len(PURGATORIES))
    done = ((shape.day + at / (shape.span * SECOND)) * rows / len(PURGATORIES)).astype("i8")
    columns = dict.fromkeys(schema.STATISTICS.names, done)
    columns |= {name: np.full(len(at), 50) for name in ("pending", "watched_entries", "keys")}
    columns |= {name: np.zeros(len(at), "i8") for name in ("dropped_rows", "refused", "failed", "undelivered")}
    settings = {"tick_ns": 1_000_000, "wheel_size": 64, "purge_interval": 0}
    columns |= {name: np.full(len(at), value) for name, value in settings.items()}
    columns |= {
        "schema_version": np.full(len(at), schema.SCHEMA_VERSION, "i2"),
        "purgatory": _named(np.tile(np.arange(len(PURGATORIES), dtype="i4"), count), PURGATORIES).cast(pa.string()),
        "instance": pa.array([f"host-{instance}"] * len(at)),
        "at": pa.array(MIDNIGHT + shape.day * DAY + at).cast(schema.STATISTICS.field("at").type),
        "missed_kinds": pa.nulls(len(at), schema.STATISTICS.field("missed_kinds").type),
    }
    return pa.Table.from_arrays([pa.array(columns[name]) for name in schema.STATISTICS.names], schema=schema.STATISTICS)


def _named(codes: Any, names: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(names), pa.string()))


def _write(folder: Path, name: str, table: pa.Table, begun: int, **options: Any) -> None:
    place = folder / time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(begun / 1e6))
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, place / f"{name}.parquet", **options)
