"""Reads the report's tables as frames with all columns. A missing table is empty; a missing column is null."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ..minutes.units import INSTANT

Frame: TypeAlias = Any  # pandas has no types of its own

_COUNT: Final = pa.float64()
_OF_KIND: Final = {"purgatory": pa.string(), "kind": pa.string()}
_MEASURES: Final = dict.fromkeys(
    (
        *("covered_s", "operations", "completed", "expired", "cancelled", "failed", "missed_triggers"),
        *("waited_p50_us", "waited_p90_us", "waited_p99_us", "waited_p999_us", "lateness_p99_us"),
        *("pending_mean", "pending_peak"),
    ),
    _COUNT,
)
_WORK: Final = (
    *("checks", "checks_without_effect", "purges", "purged", "cascaded", "wakeups", "undelivered", "refused"),
)
#: The columns that the page uses, by table.
SCHEMAS: Final = {
    "minutes": {**_OF_KIND, "minute": INSTANT, **_MEASURES},
    "seconds": {
        **_OF_KIND,
        "second": INSTANT,
        **dict.fromkeys(("completed", "expired", "cancelled", "failed", "pending"), _COUNT),
    },
    "days": {"date": pa.date32(), **_OF_KIND, **_MEASURES},
    "changes": {
        "date": pa.date32(),
        **_OF_KIND,
        "measure": pa.string(),
        **dict.fromkeys(("before", "now", "change"), _COUNT),
    },
    "hot_keys": {
        "purgatory": pa.string(),
        "place": pa.int64(),
        "key_hash": pa.int64(),
        "key": pa.string(),
        **dict.fromkeys(("operations", "share", "keys_each"), _COUNT),
    },
    "work": {"purgatory": pa.string(), "minute": INSTANT, **dict.fromkeys(_WORK, _COUNT)},
    "lost": {"date": pa.date32(), "minute": INSTANT, "what": pa.string(), "rows": _COUNT},
    "settings": {
        "purgatory": pa.string(),
        "instances": pa.int64(),
        **dict.fromkeys(("tick_s", "wheel_size", "purge_interval"), _COUNT),
    },
}


def read(folder: str, table: str) -> Frame:
    """Return all rows of *table* in the report *folder*."""
    schema = pa.schema(SCHEMAS[table])
    paths = sorted(path for path in Path(folder, table).glob("*.parquet") if path.name[0] not in "._")
    parts = [_typed(pq.ParquetFile(path), schema) for path in paths]
    return pa.concat_tables(parts or [schema.empty_table()]).to_pandas()


def _typed(file: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    rows = file.read(columns=[name for name in schema.names if name in file.schema_arrow.names])
    columns = [
        rows[field.name].cast(field.type, safe=False)
        if field.name in rows.column_names
        else pa.nulls(file.metadata.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
