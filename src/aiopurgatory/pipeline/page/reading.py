"""Reads the report's tables as frames with all columns. A missing table is empty; a missing column is null."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

from pyarrow.dataset import dataset

from ..minutes.changes import CHANGES
from ..minutes.hot_keys import HOT_KEYS
from ..minutes.measures import DAYS, MINUTES, OF_SECONDS
from ..minutes.work import DONE, IN_USE, LOST

Frame: TypeAlias = Any  # pandas has no types of its own

SCHEMAS: Final = {
    "minutes": MINUTES,
    "seconds": OF_SECONDS,
    "days": DAYS,
    "changes": CHANGES,
    "hot_keys": HOT_KEYS,
    "work": DONE,
    "lost": LOST,
    "settings": IN_USE,
}


def read(folder: str, table: str) -> Frame:
    """Return all rows of *table* in the report *folder*."""
    paths = sorted(str(path) for path in Path(folder, table).glob("*.parquet") if path.name[0] not in "._")
    rows = dataset(paths, SCHEMAS[table]).to_table() if paths else SCHEMAS[table].empty_table()
    return rows.to_pandas()
