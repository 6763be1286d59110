"""Compares the tables that both reports have: minutes, days and hot keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow.dataset import dataset, partitioning

KEYS = {
    "days": ["date", "purgatory", "kind"],
    "minutes": ["minute", "purgatory", "kind"],
    "hot_keys": ["purgatory", "place"],
}
TOLERANCE = 1e-9
#: Ours counts the seconds that the journal covers, the peer's all sixty: the first and the last minute differ.
OTHERWISE = {"pending_mean"}


def read_table(folder: Path) -> pa.Table:
    """All Parquet files in *folder*, of any name. A date may be the name of a folder."""
    date = partitioning(pa.schema([("date", pa.date32())]), flavor="hive")
    return dataset(folder, format="parquet", partitioning=date).to_table()


def differences(one: Path, other: Path) -> list[str]:
    """Return the differences between two folders of reports. Columns that only one has are not compared."""
    return [
        f"{name}: {what}"
        for name, keys in KEYS.items()
        for what in _different(read_table(one / name), read_table(other / name), keys)
    ]


def _different(one: pa.Table, other: pa.Table, keys: list[str]) -> list[str]:
    if one.num_rows != other.num_rows:
        return [f"{one.num_rows} and {other.num_rows} rows"]
    one, other = (table.sort_by([(key, "ascending") for key in keys]) for table in (one, other))
    common = [name for name in one.column_names if name in other.column_names and name not in OTHERWISE]
    return [what for name in common if (what := _compared(name, one.column(name), other.column(name)))]


def _compared(name: str, one: pa.ChunkedArray, other: pa.ChunkedArray) -> str:
    if one.is_null().to_pylist() != other.is_null().to_pylist():
        return f"{name} is null in other rows"
    if not pa.types.is_floating(one.type):
        if not pa.types.is_string(one.type):
            one, other = one.cast(other.type, safe=False), other
        return "" if one.to_pylist() == other.to_pylist() else f"{name} differs"
    mine, theirs = (column.drop_null().to_numpy() for column in (one, other))
    if np.allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE):
        return ""
    return f"{name} differs by up to {np.max(np.abs(mine - theirs)):g}"
