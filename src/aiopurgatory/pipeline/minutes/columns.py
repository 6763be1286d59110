"""Columns of a journal as numpy arrays, to judge, compare and add them up."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .units import OUTCOMES

Array = np.ndarray[Any, np.dtype[Any]]


def rows_by(rows: pa.Table, name: str) -> dict[str, pa.Table]:
    """Return the rows of each value of the column *name*."""
    codes, names = Columns(rows).codes(name)
    return {names[code]: rows.filter(pa.array(codes == code)) for code in np.unique(codes).tolist()}


class Columns:
    """The columns of *rows*. Each is converted once, on first use."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def is_null(self, name: str) -> Array | None:
        """Return a mask of the rows that are null; None: none is."""
        column = self.rows.column(name)
        return column.is_null().to_numpy() if column.null_count else None

    def numbers(self, name: str) -> Array:
        """Return a column of numbers, booleans or instants (in microseconds); 0 for null."""
        if name not in self._known:
            column = self.rows.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            if column.null_count:
                column = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
            self._known[name] = column.to_numpy()
        return self._known[name]  # type: ignore[no-any-return]

    def codes(self, name: str) -> tuple[Array, list[str]]:
        """Return a column of names: for each row the number of its value (-1: null), and the values."""
        if name not in self._known:
            column = self.rows.column(name)
            column = column.unify_dictionaries().combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], pa.string()).dictionary_encode()
            self._known[name] = pc.fill_null(column.indices, -1).to_numpy(), column.dictionary.to_pylist()
        return self._known[name]  # type: ignore[no-any-return]

    @cached_property
    def outcomes(self) -> Array:
        """For each row the place of its outcome in OUTCOMES; -1: unknown."""
        codes, values = self.codes("outcome")
        places = [OUTCOMES.index(value) if value in OUTCOMES else -1 for value in values]
        return np.array([*places, -1], np.int8)[codes]

    def where(self, mask: Array) -> Columns:
        """Return the rows where *mask* is true."""
        return self if mask.all() else Columns(self.rows.filter(pa.array(mask)))
