"""Reads the columns that the page needs, as frames. A missing table is empty; a missing column is null."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow.dataset import dataset

from ..minutes.changes import CHANGES
from ..minutes.hot_keys import HOT_KEYS
from ..minutes.measures import DAYS, KEYS, MINUTES, OF_SECONDS
from ..minutes.units import OUTCOMES
from ..minutes.work import DONE, IN_USE, LOST

Frame: TypeAlias = Any  # pandas has no types of its own

#: A year has millions of minutes.
_OF_MINUTES: Final = (
    *KEYS,
    *("minute", "covered_s", "operations", *OUTCOMES, "missed_triggers", "pending_mean", "pending_peak"),
    *("waited_p50_us", "waited_p99_us", "lateness_p99_us"),
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


def read(folder: str, table: str) -> Frame:
    """Return all rows of *table* in the report *folder*. Names in long tables are categories, which group faster."""
    paths = sorted(str(path) for path in Path(folder, table).glob("*.parquet") if path.name[0] not in "._")
    rows = dataset(paths, SCHEMAS[table]).to_table() if paths else SCHEMAS[table].empty_table()
    return rows.to_pandas(categories=KEYS if table in ("minutes", "seconds") else None)
