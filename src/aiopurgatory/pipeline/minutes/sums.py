"""Sums over operations. Sums of two groups add up to the sums of both. Ingest writes them beside its clean rows.

| table    | one row per                                               | its counts                             |
| -------- | --------------------------------------------------------- | -------------------------------------- |
| activity | purgatory, kind, minute, outcome, waited, lateness        | operations, missed_triggers            |
| seconds  | purgatory, kind, second, what (an outcome, or WAITING)    | operations; for WAITING, the change    |
| keys     | purgatory, key_hash                                       | operations, watched; the key, if known |
| shapes   | purgatory, kind, what (see below), number                 | operations, squares, total             |

Minutes and seconds count from 1970. An outcome is its place in OUTCOMES. Waited and lateness are numbers of buckets.
Every count is a sum of ``weight``, because a row may stand for many operations.

Shapes are for fit. ``squares`` sums the squared weights, ``total`` sums weight * x. By ``what``:
    AT_ONCE, LAST_TRY, ENDED, EXPIRED: ``number`` is the bin of x, the logarithm of the microseconds waited. ENDED were
        completed, cancelled or failed before their deadline, so x is exact. EXPIRED is right-censored. LAST_TRY is
        left-censored: completed by the last try at the deadline. AT_ONCE never waited.
    BY_HOUR: ``number`` is the hour since 1970.
    TIMEOUTS: ``number`` is the bin of the timeout, -1 without one; x is the timeout in microseconds.
    KEY_COUNTS: ``number`` is how many keys.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import Columns
from .percentiles import NONE, Array, bucket
from .units import MINUTE, OUTCOMES, SECOND

NAMES: Final = ("activity", "seconds", "keys", "shapes")
#: The column ``what`` of shapes.
AT_ONCE, LAST_TRY, ENDED, EXPIRED, BY_HOUR, TIMEOUTS, KEY_COUNTS = range(7)
WHATS: Final = 7
#: Bins of logarithms, per factor of e.
BINS: Final = 64
#: An operation with more keys counts as one with this many.
MOST_KEYS: Final = 64
#: In the column ``what`` of seconds: the row counts the change in the number of waiting operations.
WAITING: Final = len(OUTCOMES)
_COUNTS: Final = {
    "activity": ("operations", "missed_triggers"),
    "seconds": ("operations",),
    "keys": ("operations", "watched"),
    "shapes": ("operations", "squares", "total"),
}
_IDENTITY: Final[dict[str, dict[str, type[Any]]]] = {
    "activity": {"minute": np.int64, "outcome": np.int8, "waited": np.int16, "lateness": np.int16},
    "seconds": {"second": np.int64, "what": np.int8},
    "keys": {"key_hash": np.int64},
    "shapes": {"what": np.int8, "number": np.int64},
}
# A series is the number of a purgatory and kind.
_MOST_SERIES: Final = 1 << 13
#: The name for purgatories and kinds beyond the largest number of series.
OTHERS: Final = "(others)"
# Partial sums are added up when they have more rows than this.
_MANY: Final = 1 << 20
# To be packed, a column with a larger range is numbered.
_WIDE: Final = 1 << 20
# Up to so many cells per row, all of them are an array.
_SPARSE: Final = 4
_LONGEST_KEY: Final = 200

#: A column of names: indexes, and the names.
Names: TypeAlias = tuple[Array, list[str]]


class Sums:
    """Adds up batches."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._parts: dict[str, list[_Partial]] = {name: [] for name in NAMES}
        self._names: list[pa.Table] = []
        self._size = 0
        #: The first and the last end in each purgatory, in microseconds.
        self.spans: dict[str, tuple[int, int]] = {}
        #: When the first operation was watched, in microseconds.
        self.since_us = 1 << 62

    def add(self, rows: Columns) -> None:
        """Add good rows of operations."""
        if not len(rows):
            return
        purgatories, watched = rows.codes("purgatory"), rows.numbers("watched_at")
        ended = watched + rows.numbers("waited_us")
        series = numbered(purgatories, rows.codes("kind"), self._number).astype(np.int16)
        purgatory = np.array([self._number((name, "")) for name, _ in list(self._numbers)], np.int16)[series]
        weight = rows.numbers("weight")
        if (weight == weight[0]).all():  # as in most journals; a number is counted faster than a column
            weight = weight[0]
        key_hash = rows.numbers("key_hash")
        for name, parts in (
            ("activity", _activity(series, weight, ended, rows)),
            ("seconds", _seconds(series, weight, ended, rows)),
            ("keys", [((purgatory, key_hash), (weight, weight * rows.numbers("key_count")))]),
            ("shapes", _shapes(series, weight, ended, rows)),
        ):
            for identity, counts in parts:
                if len(identity[0]):
                    self._keep(name, _summed(identity, counts))
        key = rows.rows.column("key")
        if key.null_count < len(key):
            self._names.append(_key_names(purgatory, key_hash, key))
        self.since_us = min(self.since_us, int(watched.min()))
        codes, names = purgatories
        for code in np.flatnonzero(np.bincount(codes, minlength=len(names))).tolist():
            ends = ended if len(names) == 1 else ended[codes == code]
            widen(self.spans, {names[code]: (int(ends.min()), int(ends.max()))})

    def tables(self) -> dict[str, pa.Table]:
        """Return the sums, by name of the table."""
        found = {}
        for name, identity in _IDENTITY.items():
            part = _added_up(self._parts[name]) if self._parts[name] else _nothing(name)
            series, *columns = part.identity
            table = {"purgatory": self._named(0, series)} | ({"kind": self._named(1, series)} if name != "keys" else {})
            table |= {each: column.astype(kind) for (each, kind), column in zip(identity.items(), columns, strict=True)}
            found[name] = pa.table(table | dict(zip(_COUNTS[name], part.counts, strict=True)))
        found["keys"] = self._with_names(found["keys"])
        return found

    def _number(self, name: tuple[str, str]) -> int:
        if len(self._numbers) >= _MOST_SERIES - 1 and name not in self._numbers:
            name = OTHERS, OTHERS
        return self._numbers.setdefault(name, len(self._numbers))

    def _named(self, part: int, series: Array) -> pa.DictionaryArray:
        """Return the names of the purgatories (*part* 0) or kinds (1) of all rows."""
        names = pa.array([name[part] for name in self._numbers], pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(pa.array(names.indices.to_numpy()[series]), names.dictionary)

    def _with_names(self, keys: pa.Table) -> pa.Table:
        if not self._names:
            return keys.append_column("key", pa.nulls(len(keys), pa.string()))
        known = pa.concat_tables(self._names)
        names = pa.table(
            {
                "purgatory": self._named(0, known.column("series").to_numpy()).cast(pa.string()),
                "key_hash": known.column("key_hash"),
                "key": known.column("key"),
            }
        )
        least = names.group_by(["purgatory", "key_hash"], use_threads=False).aggregate([("key", "min")])
        plain = keys.set_column(0, "purgatory", keys.column("purgatory").cast(pa.string()))
        joined = plain.join(least, ["purgatory", "key_hash"], join_type="left outer")
        return joined.rename_columns([*keys.column_names, "key"])

    def _keep(self, name: str, part: _Partial) -> None:
        self._parts[name].append(part)
        self._size += len(part.counts[0])
        if self._size > _MANY:
            self._parts = {each: [_added_up(parts)] if parts else [] for each, parts in self._parts.items()}
            self._size = 0


#: One number for all rows, or a column.
Count: TypeAlias = Any
_Rows: TypeAlias = "tuple[tuple[Array, ...], tuple[Count, ...]]"


@dataclass(frozen=True)
class _Partial:
    """Partial sums: the columns that identify a row, and its counts."""

    identity: tuple[Array, ...]
    counts: tuple[Array, ...]


def _added_up(parts: list[_Partial]) -> _Partial:
    if len(parts) == 1:
        return parts[0]
    identity = tuple(np.concatenate(each) for each in zip(*(part.identity for part in parts), strict=True))
    counts = tuple(np.concatenate(each) for each in zip(*(part.counts for part in parts), strict=True))
    return _summed(identity, counts)


def _nothing(name: str) -> _Partial:
    none = np.zeros(0, np.int64)
    return _Partial((none,) * (1 + len(_IDENTITY[name])), (np.zeros(0),) * len(_COUNTS[name]))


def _summed(identity: tuple[Array, ...], counts: tuple[Count, ...]) -> _Partial:
    """Sum the rows of each identity. Their columns are packed into one integer."""
    packed, values = np.zeros(len(identity[0]), np.int64), []
    for column in identity:
        low, high = int(column.min()), int(column.max())
        if high - low < _WIDE:
            number, names = column - low, np.arange(low, high + 1, dtype=column.dtype)
        else:
            known = pa.array(column).dictionary_encode()
            number, names = known.indices.to_numpy(), known.dictionary.to_numpy()
        packed = packed * len(names) + number
        values.append(names)
    sizes = [len(names) for names in values]
    cells = math.prod(sizes)
    found, sums = (_in_cells if cells <= _SPARSE * len(packed) else _in_order)(packed, cells, counts)
    numbers = np.unravel_index(found, sizes)
    return _Partial(tuple(names[number] for names, number in zip(values, numbers, strict=True)), sums)


def _in_cells(packed: Array, cells: int, counts: tuple[Count, ...]) -> tuple[Array, tuple[Array, ...]]:
    rows = np.bincount(packed, minlength=cells)
    found = np.flatnonzero(rows)
    of_each = (np.bincount(packed, each, cells) if np.ndim(each) else rows * each for each in counts)
    return found, tuple(each[found] for each in of_each)


def _in_order(packed: Array, _: int, counts: tuple[Count, ...]) -> tuple[Array, tuple[Array, ...]]:
    """Sort: hashing takes five times as long."""
    order = np.argsort(packed) if any(map(np.ndim, counts)) else None
    ordered = np.sort(packed) if order is None else packed[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rows = np.diff(first, append=len(ordered))
    sums = (np.add.reduceat(each[order], first) if np.ndim(each) else rows * each for each in counts)
    return ordered[first], tuple(sums)


def numbered(first: Names, second: Names, number: Callable[[tuple[str, str]], int]) -> Array:
    """Return for each row the *number* of its pair of names."""
    (codes, names), (others, seconds) = first, second
    pairs = pa.array(codes.astype(np.int64) * len(seconds) + others).dictionary_encode()
    known = [(names[pair // len(seconds)], seconds[pair % len(seconds)]) for pair in pairs.dictionary.to_pylist()]
    found: Array = np.array([number(name) for name in known], np.int64)[pairs.indices.to_numpy()]
    return found


def widen(spans: dict[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> None:
    """Extend each of *spans* to include that of *more*."""
    for name, (first, last) in more.items():
        low, high = spans.get(name, (first, last))
        spans[name] = min(low, first), max(high, last)


def _activity(series: Array, weight: Count, ended: Array, rows: Columns) -> Iterator[_Rows]:
    late = np.full(len(series), NONE, np.int16)
    expired = rows.outcomes == OUTCOMES.index("expired")
    late[expired] = bucket(rows.numbers("lateness_us")[expired])
    identity = series, (ended // MINUTE).astype(np.int32), rows.outcomes, bucket(rows.numbers("waited_us")), late
    yield identity, (weight, 0.0)
    missed = rows.numbers("missed_trigger")
    yield _where(missed, identity), (0.0, _weight_where(missed, weight))


def _seconds(series: Array, weight: Count, ended: Array, rows: Columns) -> Iterator[_Rows]:
    """Count ends by second. Count changes in the number waiting at the next beginning of a second."""
    yield (series, ended // SECOND, rows.outcomes), (weight,)
    start, end = -(-rows.numbers("watched_at") // SECOND), -(-ended // SECOND)
    seen = start < end  # most operations begin and end within one second
    some, what = _weight_where(seen, weight), np.full(np.count_nonzero(seen), WAITING, np.int8)
    yield (*_where(seen, (series, start)), what), (some,)
    yield (*_where(seen, (series, end)), what), (-some,)


def _shapes(series: Array, weight: Count, ended: Array, rows: Columns) -> Iterator[_Rows]:
    expired, waited_us = rows.outcomes == OUTCOMES.index("expired"), rows.numbers("waited_us")
    # A completion in the same microsecond took less than one, and still some time.
    waited = np.log(np.maximum(waited_us, 1))
    end = np.select([expired, waited_us <= 0, rows.numbers("missed_trigger")], [EXPIRED, AT_ONCE, LAST_TRY], ENDED)
    timeout, no_timeout = rows.numbers("timeout_us"), rows.is_null("timeout_us")
    bins = np.floor(np.log1p(timeout) * BINS).astype(np.int64)
    if no_timeout is not None:
        bins[no_timeout] = -1
    parts: list[tuple[Any, Array, Count]] = [
        (end, np.floor(waited * BINS).astype(np.int64), waited),
        (BY_HOUR, ended // (60 * MINUTE), 0.0),
        (TIMEOUTS, bins, timeout),
        (KEY_COUNTS, np.clip(rows.numbers("key_count"), 1, MOST_KEYS), 0.0),
    ]
    for what, number, x in parts:
        yield (series, np.broadcast_to(what, len(series)), number), (weight, weight**2, weight * x)


def _where(mask: Array, columns: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(column[mask] for column in columns)


def _weight_where(mask: Array, weight: Count) -> Count:
    return weight[mask] if np.ndim(weight) else weight


def _key_names(purgatory: Array, key_hash: Array, key: pa.ChunkedArray) -> pa.Table:
    short = pc.utf8_slice_codeunits(key, 0, _LONGEST_KEY)
    table = pa.table({"series": purgatory, "key_hash": key_hash, "key": short})
    known = table.filter(pc.is_valid(table.column("key"))).group_by(["series", "key_hash"], use_threads=False)
    return known.aggregate([("key", "min")]).rename_columns(["series", "key_hash", "key"])
