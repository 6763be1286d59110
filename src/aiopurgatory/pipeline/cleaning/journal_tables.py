"""The two tables of a journal, and what tells their rows apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aiopurgatory.journal import schema


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


OPERATIONS: Final = Table("operations", schema.OPERATIONS, ("instance",), "sequence", ("watched_at", "waited_us"))
STATISTICS: Final = Table("statistics", schema.STATISTICS, ("instance", "purgatory"), "at", ("at",))
TABLES: Final = {table.name: table for table in (OPERATIONS, STATISTICS)}
