"""The two tables of a journal, and the columns that identify their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from aiopurgatory.journal import schema

_NAMES: Final = ("purgatory", "instance", "kind", "outcome")
_NAME: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Table:
    """One of the two tables. No two rows have both ``who`` and ``counter`` in common.

    ``counter`` goes up through the files of ``who``. Overlapping ranges reveal a file delivered twice.
    """

    name: str
    arrow: pa.Schema
    who: tuple[str, ...]
    counter: str
    #: Columns in microseconds. Their sum gives the day of a row.
    ended: tuple[str, ...]

    @cached_property
    def held(self) -> pa.Schema:
        """The schema in memory, where names are dictionaries."""
        return pa.schema([(each.name, _NAME if each.name in _NAMES else each.type) for each in self.arrow])


OPERATIONS: Final = Table("operations", schema.OPERATIONS, ("instance",), "sequence", ("watched_at", "waited_us"))
STATISTICS: Final = Table("statistics", schema.STATISTICS, ("instance", "purgatory"), "at", ("at",))
TABLES: Final = {table.name: table for table in (OPERATIONS, STATISTICS)}
