"""Reads the columns that the page needs. A missing table is empty; a missing column is null."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.dataset import ParquetFileFormat, dataset

from ..minutes.changes import CHANGES
from ..minutes.columns import rows_by
from ..minutes.hot_keys import HOT_KEYS
from ..minutes.measures import DAYS, KEYS, MINUTES, OF_SECONDS
from ..minutes.units import OUTCOMES, SECOND
from ..minutes.work import DONE, IN_USE, LOST

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

MINUTE: Final = 60
_SUMMED: Final = ("operations", *OUTCOMES, "missed_triggers", "pending_peak", "held")
# Files read at once. The columns of a year's would not fit into the processor's cache, and each would be new memory.
_FILES: Final = 32
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
    """Return all rows of *table* in the report *folder*."""
    return _read(_paths(folder, table), SCHEMAS[table])


def _paths(folder: str, table: str) -> list[str]:
    return sorted(str(path) for path in Path(folder, table).glob("*.parquet") if path.name[0] not in "._")


def _read(paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    names = [each.name for each in schema if pa.types.is_dictionary(each.type)]
    held = ParquetFileFormat(dictionary_columns=names)
    return dataset(paths, schema, format=held).to_table() if paths else schema.empty_table()


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
    """Minutes or seconds of one purgatory, all of its kinds together."""

    #: In order, in seconds since 1970.
    at: Ints
    #: By column: the sum over the kinds, or the largest, which is NaN where nothing ended. ``held`` is how long
    #: operations waited within each minute or second, in seconds.
    values: Mapping[str, Floats]
    #: The same by kind, with fewer columns.
    kinds: Mapping[str, Pool]

    def total(self, name: str) -> float:
        return float(self.values[name].sum())


def minutes_of(folder: str) -> dict[str, Pool]:
    """Return the minutes in the report *folder* by purgatory, the busiest first."""

    def pool(rows: pa.Table) -> Pool:
        covered = rows["covered_s"].to_numpy()
        covered = np.where(covered > 0, covered, MINUTE)  # the whole minute where the table does not say
        held = _numbers(rows, "pending_mean") * covered
        rows = rows.drop_columns(["covered_s"]).append_column("covered_s", pa.array(covered))
        return _pool(rows.append_column("held", pa.array(held)), "minute", _SUMMED, ("covered_s", *TIMES))

    return dict(sorted(_pools(folder, "minutes", pool), key=lambda each: -each[1].total("operations")))


def seconds_of(folder: str) -> dict[str, Pool]:
    """Return the seconds in the report *folder* by purgatory."""

    def pool(rows: pa.Table) -> Pool:
        return _pool(rows.append_column("held", rows["pending"]), "second", (*OUTCOMES, "held"), ())

    return dict(_pools(folder, "seconds", pool))


def _pools(folder: str, table: str, pool: Callable[[pa.Table], Pool]) -> Iterator[tuple[str, Pool]]:
    name = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([pa.field(each.name, name) if each.name in KEYS else each for each in SCHEMAS[table]])
    parts: dict[str, list[Pool]] = defaultdict(list)
    paths = _paths(folder, table)
    for number in range(0, len(paths), _FILES):
        for purgatory, rows in rows_by(_read(paths[number : number + _FILES], schema), "purgatory").items():
            parts[purgatory].append(pool(rows))
    yield from ((purgatory, _joined(parts[purgatory])) for purgatory in sorted(parts))


def _pool(rows: pa.Table, time: str, summed: Sequence[str], largest: Sequence[str], *, kinds: bool = True) -> Pool:
    at, place = np.unique(epoch(rows[time]), return_inverse=True)
    values: dict[str, Any] = {name: np.bincount(place, _numbers(rows, name), len(at)) for name in summed}
    for name in largest:
        values[name] = np.full(len(at), np.nan)
        np.fmax.at(values[name], place, rows[name].to_numpy())
    few = [name for name in summed if name in ("operations", "held")]
    own = rows_by(rows.select(["kind", time, *few]), "kind") if kinds else {}
    return Pool(at, values, {kind: _pool(each, time, few, (), kinds=False) for kind, each in own.items()})


def _numbers(rows: pa.Table, name: str) -> Floats:
    column = rows[name]
    return np.asarray(column.fill_null(0.0) if column.null_count else column, np.float64)


def _joined(parts: Sequence[Pool]) -> Pool:
    """Join pools of files whose times follow each other."""
    kinds = sorted({kind for part in parts for kind in part.kinds})
    return Pool(
        np.concatenate([part.at for part in parts]),
        {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
        {kind: _joined([part.kinds[kind] for part in parts if kind in part.kinds]) for kind in kinds},
    )
