"""The two tables of a journal, and what tells their rows apart."""

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
    """One of the two. No two rows have both ``who`` and ``counter`` in common.

    ``counter`` goes up through the files of ``who``: a file delivered twice shows by its first and last value.
    """

    name: str
    arrow: pa.Schema
    who: tuple[str, ...]
    counter: str
    #: A row belongs to the day of the sum of these columns, which are microseconds.
    ended: tuple[str, ...]

    @cached_property
    def held(self) -> pa.Schema:
        """The columns in memory, where names are dictionaries."""
        return pa.schema([(each.name, _NAME if each.name in _NAMES else each.type) for each in self.arrow])


OPERATIONS: Final = Table("operations", schema.OPERATIONS, ("instance",), "sequence", ("watched_at", "waited_us"))
STATISTICS: Final = Table("statistics", schema.STATISTICS, ("instance", "purgatory"), "at", ("at",))
TABLES: Final = {table.name: table for table in (OPERATIONS, STATISTICS)}
