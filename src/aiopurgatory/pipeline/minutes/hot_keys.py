"""Finds the hottest keys: most operations waited under them. Counts how many waited at once."""

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
Key = tuple[str, int]
#: A key on one day: minutes with waiting operations, and the sum and maximum of their number per second.
FanOut = tuple[Key, int, float, float]
_READ: Final = ["purgatory", "key_hash", "watched_at", "waited_us", "weight"]
_PER_DAY: Final = DAY // SECOND
_PER_MINUTE: Final = MINUTE // SECOND


def top_keys(files: Sequence[str], share: int, *, top: int, shares: int) -> pa.Table:
    """Return the hottest keys of each purgatory, and the operations of all its keys, from *files* of sums of keys.

    Args: share: take only keys with ``hash % shares == share``.
    """
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
    found = ordered.append_column("everything", pa.array(everything[codes])).take(some)
    return found.rename_columns([name.removesuffix("_sum").removesuffix("_min") for name in found.column_names])


def merged(shares: Sequence[pa.Table], top: int) -> list[dict[str, Any]]:
    """Results of top_keys() for all shares -> rows of HOT_KEYS, in order, without fan-out."""
    found = []
    by_purgatory: dict[str, list[dict[str, Any]]] = {}
    all_of: dict[str, float] = {}
    for share in shares:
        rows = share.to_pylist()
        for row in rows:
            by_purgatory.setdefault(row["purgatory"], []).append(row)
        for name, everything in {row["purgatory"]: row["everything"] for row in rows}.items():
            all_of[name] = all_of.get(name, 0.0) + everything
    for name, rows in sorted(by_purgatory.items()):
        rows.sort(key=lambda row: (-row["operations"], row["key_hash"]))
        for place, row in enumerate(rows[:top], 1):
            operations, watched = float(row["operations"]), float(row["watched"])
            known = {"purgatory": name, "place": place, "key_hash": row["key_hash"], "key": row["key"]}
            relative = {"share": operations / all_of[name], "keys_each": watched / operations}
            found.append(known | {"operations": operations} | relative)
    return found


def fan_out_of_day(task: tuple[int, Sequence[str]], wanted: Iterable[Key]) -> list[FanOut]:
    """Return the fan-out of the *wanted* keys.

    Args: task: the number of a day since 1970, and the files with clean operations that were waiting on it.
    """
    day, files = task
    number = {key: place for place, key in enumerate(sorted(wanted))}
    hashes = np.array(sorted({key_hash for _, key_hash in number}), np.int64)
    changes: list[tuple[Array, Array]] = []
    for path in files:
        system, where = arrow_place(path)
        parquet = pq.ParquetFile(where, filesystem=system, read_dictionary=["purgatory"])
        for rows in parquet.iter_batches(1 << 18, columns=_READ, use_threads=False):
            changes += _changes(rows, hashes, number, day * _PER_DAY)
    keys, held = list(number), list[FanOut]()
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
            held.append((key, minutes, float(per_minute.sum()), float(per_minute.max())))
    return held


def hot_keys(top: list[dict[str, Any]], fan_out: Iterable[list[FanOut]]) -> pa.Table:
    """Rows of HOT_KEYS, and the fan-out on all days -> HOT_KEYS.

    Fan-out is the number of operations waiting under the key at once. An event has to try all of them. The mean is over
    minutes with waiting operations.
    """
    days: dict[Key, list[FanOut]] = {}
    for each in fan_out:
        for fan_out_of_key in each:
            days.setdefault(fan_out_of_key[0], []).append(fan_out_of_key)
    for key in top:
        own = days.get((key["purgatory"], key["key_hash"]), [])
        minutes = sum(each[1] for each in own)
        key["fan_out_mean"] = sum(each[2] for each in own) / _PER_MINUTE / minutes if minutes else 0.0
        key["fan_out_peak"] = max((each[3] for each in own), default=0.0)
    return pa.Table.from_pylist(top, HOT_KEYS)


def _changes(rows: pa.RecordBatch, hashes: Array, number: dict[Key, int], begin: int) -> Iterator[tuple[Array, Array]]:
    """Yield changes in the number waiting, with their cells: the number of the key, and the second of the day."""
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
