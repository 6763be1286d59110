"""A bounded buffer of fixed-size records, which costs the event loop one call per operation, and no object."""

from __future__ import annotations

from math import nan
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.outcome import Outcome
from .schema import OPERATIONS, SCHEMA_VERSION

#: name, format for struct, type for numpy
_FIELDS: Final = [
    ("sequence", "q", "<i8"),
    ("key_hash", "q", "<i8"),
    ("ended_at", "d", "<f8"),  # seconds, as all that follow
    ("waited", "d", "<f8"),
    ("timeout", "d", "<f8"),
    ("lateness", "d", "<f8"),
    ("weight", "d", "<f8"),
    ("series", "i", "<i4"),  # which purgatory and class
    ("key_count", "i", "<i4"),
    ("outcome", "b", "<i1"),
    ("missed", "b", "<i1"),
]
_RECORD: Final = Struct("<" + "".join(code for _, code, _ in _FIELDS))
_DTYPE: Final = np.dtype([(name, kind) for name, _, kind in _FIELDS])
OUTCOMES: Final = tuple(Outcome)
NONE: Final = nan


class Records:
    """Args: capacity: rows. series: purgatory and class by number; it may grow."""

    def __init__(self, capacity: int, series: list[tuple[str, str]]) -> None:
        self.begun_at = 0.0
        self.count = 0
        self._capacity = capacity
        self._series = series
        self._buffer = bytearray(capacity * _RECORD.size)
        self._keys: list[str] = []

    def is_full(self) -> bool:
        return self.count >= self._capacity

    def add(self, *fields: Any) -> None:
        """*fields* as in the record; there must be room. Cost: one call."""
        _RECORD.pack_into(self._buffer, self.count * _RECORD.size, *fields)
        self.count += 1

    def add_key(self, key: str) -> None:
        """Where keys are kept, that of each record, before it."""
        self._keys.append(key)

    def clear(self) -> None:
        self.count = 0
        self._keys.clear()

    def table(self, instance: str) -> pa.Table:
        """The rows by the schema. For a thread: numpy and Arrow do it all."""
        rows = np.frombuffer(self._buffer, _DTYPE, self.count)
        purgatories, kinds = ([names[i] for names in self._series] for i in (0, 1))
        ended_us = np.rint(rows["ended_at"] * 1e6).astype("i8")
        waited_us = _microseconds(rows["waited"])
        columns: dict[str, Any] = {
            "schema_version": np.full(self.count, SCHEMA_VERSION, "i2"),
            "purgatory": _named(rows["series"], purgatories),
            "instance": pa.repeat(instance, self.count),
            "sequence": rows["sequence"],
            "kind": _named(rows["series"], kinds),
            "key_count": rows["key_count"],
            "key_hash": rows["key_hash"],
            "key": pa.array(self._keys, pa.string()) if self._keys else pa.nulls(self.count, pa.string()),
            "watched_at": ended_us - waited_us,
            "waited_us": waited_us,
            "timeout_us": pa.array(_microseconds(rows["timeout"]), mask=~np.isfinite(rows["timeout"])),
            "outcome": _named(rows["outcome"], [outcome.value for outcome in OUTCOMES]),
            "lateness_us": pa.array(_microseconds(rows["lateness"]), mask=np.isnan(rows["lateness"])),
            "missed_trigger": rows["missed"].astype(bool),
            "weight": rows["weight"],
        }
        # Record fields lie between others: Arrow wants its columns by themselves.
        arrays = [pa.array(np.ascontiguousarray(c)) if isinstance(c, np.ndarray) else c for c in columns.values()]
        cast = [array.cast(field.type) for array, field in zip(arrays, OPERATIONS, strict=True)]
        return pa.Table.from_arrays(cast, schema=OPERATIONS)


def _microseconds(seconds: Any) -> Any:
    return np.rint(np.nan_to_num(seconds, nan=0.0, posinf=0.0) * 1e6).astype("i8")


def _named(codes: Any, names: list[str]) -> pa.Array:
    return pc.take(pa.array(names, pa.string()), pa.array(np.ascontiguousarray(codes)))
