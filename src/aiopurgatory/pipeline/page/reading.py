"""Reads the columns that the page needs. A missing table is empty; a missing column is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import ParquetFileFormat, dataset

from ..minutes.changes import CHANGES
from ..minutes.hot_keys import HOT_KEYS
from ..minutes.measures import DAYS, KEYS, MINUTES, OF_SECONDS, series_of
from ..minutes.units import OUTCOMES, SECOND
from ..minutes.work import DONE, IN_USE, LOST

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

MINUTE: Final = 60
# Up to so many cells per row, all of them are an array.
_SPARSE: Final = 4
#: Percentiles cannot be added: of several kinds or minutes, the page shows the largest.
TIMES: Final = ("waited_p50_us", "waited_p99_us", "lateness_p99_us")
#: A year has millions of minutes.
_OF_MINUTES: Final = (
    *KEYS,
    *("minute", "covered_s", "operations", *OUTCOMES, "missed_triggers", "pending_mean", "pending_peak"),
    *TIMES,
)
SCHEMAS: Final = {
    "minutes": pa.schema([MINUTES.field(name) for name in _OF_MINUTES]),
    "seconds": OF_SECONDS,
    "days": DAYS,
    "changes": CHANGES,
    "hot_keys": HOT_KEYS,
    "work": DONE,
    "lost": LOST,
    "settings": IN_USE,
}


def read(folder: str, table: str) -> pa.Table:
    """Return all rows of *table* in the report *folder*. Names in long tables are dictionaries, which group faster."""
    paths = sorted(str(path) for path in Path(folder, table).glob("*.parquet") if path.name[0] not in "._")
    schema = SCHEMAS[table]
    if table in ("minutes", "seconds"):
        name = pa.dictionary(pa.int32(), pa.string())
        schema = pa.schema([pa.field(each.name, name) if each.name in KEYS else each for each in schema])
    if not paths:
        return schema.empty_table()
    return dataset(paths, schema, format=ParquetFileFormat(dictionary_columns=KEYS)).to_table()


def records(rows: pa.Table) -> list[SimpleNamespace]:
    """Return the rows of a small table. Unknown numbers are NaN."""
    columns = [
        column.to_numpy().tolist()
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        else column.to_pylist()
        for column in rows.columns
    ]
    return [SimpleNamespace(**dict(zip(rows.column_names, row, strict=True))) for row in zip(*columns, strict=True)]


def epoch(times: pa.ChunkedArray) -> Ints:
    """Return whole seconds since 1970."""
    return np.asarray(times.cast(pa.int64()).to_numpy() // SECOND, dtype=np.int64)


@dataclass(frozen=True)
class Pool:
    """The minutes or seconds of one purgatory, all of its kinds together."""

    #: In order, in seconds since 1970.
    at: Ints
    #: By column: the sum over the kinds, or the largest, which is NaN where nothing ended.
    values: Mapping[str, Floats]
    #: By kind, the busiest first: times, and how long its operations waited within each, in seconds.
    held: Mapping[str, tuple[Ints, Floats]]

    def total(self, name: str) -> float:
        return float(self.values[name].sum())


def minutes_of(rows: pa.Table) -> dict[str, Pool]:
    """Rows of minutes -> their pools by purgatory, the busiest first."""
    covered = rows["covered_s"].to_numpy()
    covered = np.where(covered > 0, covered, MINUTE)  # the whole minute where the table does not say
    largest = {"covered_s": covered, **{name: rows[name].to_numpy() for name in TIMES}}
    summed = _numbers(rows, ("operations", *OUTCOMES, "missed_triggers", "pending_peak"))
    pools = _pooled(rows, "minute", MINUTE, _numbers(rows, ["pending_mean"])["pending_mean"] * covered, summed, largest)
    return dict(sorted(pools.items(), key=lambda each: -each[1].total("operations")))


def seconds_of(rows: pa.Table) -> dict[str, Pool]:
    """Rows of seconds -> their pools by purgatory."""
    summed = _numbers(rows, (*OUTCOMES, "pending"))
    return _pooled(rows, "second", 1, summed["pending"], summed, {})


def _numbers(rows: pa.Table, names: Sequence[str]) -> dict[str, Floats]:
    columns = {name: rows[name] for name in names}
    return {name: (pc.fill_null(each, 0.0) if each.null_count else each).to_numpy() for name, each in columns.items()}


def _pooled(
    rows: pa.Table,
    time: str,
    unit: int,
    held: Floats,
    summed: Mapping[str, Floats],
    largest: Mapping[str, Floats],
) -> dict[str, Pool]:
    """Args: summed: columns to add up over kinds, the first of which decides which kind is busier."""
    pairs: dict[tuple[str, str], int] = {}
    series, at = series_of(rows, pairs), epoch(rows[time])
    names = sorted({purgatory for purgatory, _ in pairs})
    first, length = (int(at.min()), int(np.ptp(at)) // unit + 1) if len(at) else (0, 1)
    owner = np.array([names.index(purgatory) * length for purgatory, _ in pairs], np.int64)
    cell = owner[series] + (at - first) // unit
    cells = np.arange(len(names) * length) if len(names) * length <= _SPARSE * len(cell) else None
    if cells is None:
        cells, cell = np.unique(cell, return_inverse=True)
    some = np.flatnonzero(np.bincount(cell, minlength=len(cells)))
    values: dict[str, Any] = {name: np.bincount(cell, each, len(cells))[some] for name, each in summed.items()}
    for name, each in largest.items():
        found = np.full(len(cells), np.nan)
        np.fmax.at(found, cell, each)
        values[name] = found[some]
    cells = cells[some]
    bounds = np.searchsorted(cells, np.arange(len(names) + 1) * length).tolist()
    busy = np.bincount(series, next(iter(summed.values())), len(pairs))
    order = np.argsort(series.astype(np.min_scalar_type(len(pairs))), kind="stable")  # by radix, if it is small
    parts = np.split(order, np.bincount(series, minlength=len(pairs)).cumsum()[:-1])
    kinds: dict[str, dict[str, tuple[Ints, Floats]]] = {}
    for purgatory, kind in sorted(pairs, key=lambda pair: (-busy[pairs[pair]], pair)):
        own = parts[pairs[purgatory, kind]]
        kinds.setdefault(purgatory, {})[kind] = at[own], held[own]
    return {
        name: Pool(
            cells[a:b] % length * unit + first, {each: column[a:b] for each, column in values.items()}, kinds[name]
        )
        for name, a, b in zip(names, bounds, bounds[1:], strict=False)
    }
