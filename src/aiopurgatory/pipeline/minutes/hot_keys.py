"""The keys under which most operations waited, and how many waited under each at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..spark.folders import arrow_place
from .percentiles import Array
from .units import DAY, MINUTE, SECOND

HOT_KEYS: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("place", pa.int32()),
        ("key_hash", pa.int64()),
        ("key", pa.string()),
        *((name, pa.float64()) for name in ("operations", "share", "keys_each", "fan_out_mean", "fan_out_peak")),
    ]
)
#: Of some keys: the first of each purgatory, and how many operations all of its keys have.
TOP: Final = (
    "purgatory STRING, key_hash BIGINT, key STRING, operations DOUBLE, watched DOUBLE, everything DOUBLE, share INT"
)
TOP_SCHEMA: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("key_hash", pa.int64()),
        ("key", pa.string()),
        *((name, pa.float64()) for name in ("operations", "watched", "everything")),
        ("share", pa.int32()),
    ]
)
#: Of one key on one day: minutes in which any waited, the sum over its seconds of how many did, and the most.
FAN_OUT: Final = "purgatory STRING, key_hash BIGINT, minutes BIGINT, held DOUBLE, peak DOUBLE"
FAN_OUT_SCHEMA: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("key_hash", pa.int64()),
        ("minutes", pa.int64()),
        ("held", pa.float64()),
        ("peak", pa.float64()),
    ]
)
_READ: Final = ["purgatory", "key_hash", "watched_at", "waited_us", "weight"]
_PER_DAY: Final = DAY // SECOND
_PER_MINUTE: Final = MINUTE // SECOND

Key = tuple[str, int]


def top_keys(files: Sequence[str], top: int, share: int, shares: int) -> pa.Table:
    """Sums of keys -> TOP: of those keys whose hash is of the *share* of all *shares*."""
    table = pa.concat_tables([_read(path) for path in files])
    if shares > 1:
        table = table.filter(pa.array(table.column("key_hash").to_numpy() % shares == share))
    counts = [("operations", "sum"), ("watched", "sum"), ("key", "min")]
    summed = table.group_by(["purgatory", "key_hash"], use_threads=False).aggregate(counts)
    order = [("purgatory", "ascending"), ("operations_sum", "descending"), ("key_hash", "ascending")]
    ordered = summed.sort_by(order)
    codes = ordered.column("purgatory").combine_chunks().dictionary_encode().indices.to_numpy()
    everything = np.bincount(codes, ordered.column("operations_sum").to_numpy())
    first = np.searchsorted(codes, codes)
    some = pa.array(np.flatnonzero(np.arange(len(codes)) - first < top))
    of_share = pa.array(np.full(len(codes), share, np.int32))
    found = ordered.append_column("everything", pa.array(everything[codes])).append_column("share", of_share).take(some)
    names = {"operations": "operations_sum", "watched": "watched_sum", "key": "key_min"}
    return found.select([names.get(name, name) for name in TOP_SCHEMA.names]).rename_columns(TOP_SCHEMA.names)


def merged(parts: pa.Table, top: int) -> list[dict[str, Any]]:
    """TOP of all shares -> rows of HOT_KEYS without fan-out, in their order."""
    found = []
    by_purgatory: dict[str, list[dict[str, Any]]] = {}
    for row in parts.to_pylist():
        by_purgatory.setdefault(row["purgatory"], []).append(row)
    for name, rows in sorted(by_purgatory.items()):
        everything = sum({row["share"]: row["everything"] for row in rows}.values())
        rows.sort(key=lambda row: (-row["operations"], row["key_hash"]))
        for place, row in enumerate(rows[:top], 1):
            operations, watched = float(row["operations"]), float(row["watched"])
            known = {"purgatory": name, "place": place, "key_hash": row["key_hash"], "key": row["key"]}
            of_all = {"share": operations / everything, "keys_each": watched / operations}
            found.append(known | {"operations": operations} | of_all)
    return found


def fan_out_of_day(day: int, files: Sequence[str], wanted: Iterable[Key]) -> Iterator[pa.RecordBatch]:
    """Clean operations that were waiting on a *day*, in *files* -> FAN_OUT of the *wanted* keys."""
    number = {key: place for place, key in enumerate(sorted(wanted))}
    hashes = np.array(sorted({key_hash for _, key_hash in number}), np.int64)
    changes: list[tuple[Array, Array]] = []
    for path in files:
        system, where = arrow_place(path)
        parquet = pq.ParquetFile(where, filesystem=system, read_dictionary=["purgatory"])
        for rows in parquet.iter_batches(1 << 18, columns=_READ, use_threads=False):
            changes += _changes(rows, hashes, number, day * _PER_DAY)
    keys, held = list(number), []
    cells = np.concatenate([cell for cell, _ in changes]) if changes else np.zeros(0, np.int64)
    weights = np.concatenate([weight for _, weight in changes]) if changes else np.zeros(0)
    order = np.argsort(cells // _PER_DAY, kind="stable")
    bounds = np.searchsorted((cells // _PER_DAY)[order], np.arange(len(keys) + 1))
    for place, key in enumerate(keys):  # one at a time: a day has 86,400 seconds
        own = order[bounds[place] : bounds[place + 1]]
        level = np.round(np.bincount(cells[own] % _PER_DAY, weights[own], _PER_DAY).cumsum(), 6)
        per_minute = np.maximum(level, 0).reshape(-1, _PER_MINUTE)
        minutes = int((per_minute.max(axis=1) > 0).sum())
        if minutes:
            held.append((*key, minutes, float(per_minute.sum()), float(per_minute.max())))
    columns = [list(column) for column in zip(*held, strict=True)] or [[]] * len(FAN_OUT_SCHEMA)
    yield pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, FAN_OUT_SCHEMA, strict=True)],
        schema=FAN_OUT_SCHEMA,
    )


def hot_keys(top: list[dict[str, Any]], fan_out: pa.Table) -> pa.Table:
    """Rows of HOT_KEYS, and FAN_OUT of all days -> HOT_KEYS.

    Fan-out is how many were waiting under the key at once: so many one event has to try; the mean is over the minutes
    in which any were.
    """
    days: dict[object, list[dict[str, float]]] = {}
    for row in fan_out.to_pylist():
        days.setdefault((row["purgatory"], row["key_hash"]), []).append(row)
    for key in top:
        own = days.get((key["purgatory"], key["key_hash"]), [])
        minutes = sum(each["minutes"] for each in own)
        key["fan_out_mean"] = sum(each["held"] for each in own) / _PER_MINUTE / minutes if minutes else 0.0
        key["fan_out_peak"] = max((each["peak"] for each in own), default=0.0)
    return pa.Table.from_pylist(top, HOT_KEYS)


def _changes(rows: pa.RecordBatch, hashes: Array, number: dict[Key, int], begin: int) -> Iterator[tuple[Array, Array]]:
    """The cells (number of the key, second of the day) in which how many wait changes, and by how many."""
    key_hash = rows.column("key_hash").to_numpy()
    place = np.minimum(np.searchsorted(hashes, key_hash), len(hashes) - 1)
    watched = rows.column("watched_at").cast(pa.int64()).to_numpy()
    start = -(-watched // SECOND) - begin
    end = -(-(watched + rows.column("waited_us").to_numpy()) // SECOND) - begin
    kept = (hashes[place] == key_hash) & (start < end) & (end > 0) & (start < _PER_DAY)
    codes = rows.column("purgatory").indices.to_numpy()[kept]
    names = rows.column("purgatory").dictionary.to_pylist()
    numbers = np.array([[number.get((name, key), -1) for key in hashes.tolist()] for name in names], np.int64)
    key = numbers.reshape(len(names), -1)[codes, place[kept]]
    start, end, weight = start[kept], end[kept], rows.column("weight").to_numpy()[kept]
    for second, change in ((np.maximum(start, 0), weight), (end, -weight)):
        inside = (key >= 0) & (second < _PER_DAY)
        yield key[inside] * _PER_DAY + second[inside], change[inside]


def _read(path: str) -> pa.Table:
    system, place = arrow_place(path)
    return pq.ParquetFile(place, filesystem=system).read(use_threads=False)
