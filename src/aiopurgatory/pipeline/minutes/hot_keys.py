"""Finds the hottest keys: most operations waited under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOT_KEYS: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("place", pa.int32()),
        ("key_hash", pa.int64()),
        ("key", pa.string()),
        *((name, pa.float64()) for name in ("operations", "share", "keys_each")),
    ]
)
_KEYS_PER_TASK: Final = 4_000_000


def shares_of(files: Sequence[tuple[str, int]]) -> int:
    """Return among how many tasks the keys are to be divided. *files* have sums of keys: paths, and rows."""
    return max(1, sum(rows for _, rows in files) // _KEYS_PER_TASK)


def counted(files: Sequence[str], share: int, *, shares: int) -> list[tuple[str, float, int]]:
    """Return purgatory, a number of operations, and how many keys have that number, from *files* of sums of keys.

    Args: share: take only keys with ``hash % shares == share``.
    """
    counts = _summed(files, share, shares).group_by(["purgatory", "operations_sum"], use_threads=False)
    found = counts.aggregate([("key_hash", "count")])
    columns = (found.column(name).to_pylist() for name in ("purgatory", "operations_sum", "key_hash_count"))
    return list(zip(*columns, strict=True))


def top_keys(files: Sequence[str], share: int, *, top: int, shares: int) -> pa.Table:
    """Return the hottest keys of each purgatory, and the operations of all its keys. Arguments as in counted()."""
    summed = _summed(files, share, shares)
    order = [("purgatory", "ascending"), ("operations_sum", "descending"), ("key_hash", "ascending")]
    ordered = summed.sort_by(order)
    codes = ordered.column("purgatory").combine_chunks().dictionary_encode().indices.to_numpy()
    everything = np.bincount(codes, ordered.column("operations_sum").to_numpy())
    first = np.searchsorted(codes, codes)
    some = pa.array(np.flatnonzero(np.arange(len(codes)) - first < top))
    found = ordered.append_column("everything", pa.array(everything[codes])).take(some)
    return found.rename_columns([name.removesuffix("_sum").removesuffix("_min") for name in found.column_names])


def hot_keys(shares: Sequence[pa.Table], top: int) -> pa.Table:
    """Results of top_keys() for all shares -> HOT_KEYS, in order."""
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
            relative = {"share": operations / all_of[name], "keys_each": watched / operations}
            found.append(row | {"place": place, "operations": operations} | relative)
    return pa.Table.from_pylist([{name: row[name] for name in HOT_KEYS.names} for row in found], HOT_KEYS)


def _summed(files: Sequence[str], share: int, shares: int) -> pa.Table:
    table = pa.concat_tables([pq.ParquetFile(path).read(use_threads=False) for path in files])
    if shares > 1:
        table = table.filter(pa.array(table.column("key_hash").to_numpy() % shares == share))
    counts = [("operations", "sum"), ("watched", "sum"), ("key", "min")]
    return table.group_by(["purgatory", "key_hash"], use_threads=False).aggregate(counts)
