"""What a journal holds: the one description, for who writes it and for who reads it.

A journal is a folder that engines of tables (Spark, DuckDB, pandas) read as it lies:

    operations/date=2026-11-21/hour=13/<instance>-<number>.parquet    one row per operation that ended
    statistics/date=2026-11-21/hour=13/<instance>-<number>.parquet    one row per snapshot of Purgatory.statistics():
                                                                      at its opening, every so often, at its close

``date`` and ``hour`` (UTC) are those of a file's first row; others in it may be of other hours. A file is there
whole or not at all; what begins with a dot is still being written. Columns are only ever added; whatever changes the
meaning of one makes a new version.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: In the column ``schema_version`` of every row.
SCHEMA_VERSION: Final = 1

_INSTANT: Final = pa.timestamp("us", tz="UTC")


def _field(name: str, kind: pa.DataType, about: str, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={"comment": about})


_WHOSE: Final = [
    _field("schema_version", pa.int16(), "of the row"),
    _field("purgatory", pa.string(), "its name"),
    _field("instance", pa.string(), "one run of one process: host, process id, and a random part"),
]

OPERATIONS: Final = pa.schema(
    [
        *_WHOSE,
        _field("sequence", pa.int64(), "counts what ended in this instance, from 0; a gap was sampled out or dropped"),
        _field("kind", pa.string(), "the operation's class"),
        _field("key_count", pa.int32(), "its watch keys"),
        _field("key_hash", pa.int64(), "of the repr of the first key, equal in all instances with the same salt"),
        _field("key", pa.string(), "the first key's repr; null unless the journal was told to keep keys", True),
        _field("watched_at", _INSTANT, "when it was watched"),
        _field("waited_us", pa.int64(), "from then to its end; 0: it never had to wait"),
        _field("timeout_us", pa.int64(), "its timeout, the last one if it was rescheduled; null: no deadline", True),
        _field("outcome", pa.string(), "completed, expired, cancelled or failed"),
        _field("lateness_us", pa.int64(), "from its deadline to its end if it expired, else null", True),
        _field("missed_trigger", pa.bool_(), "completed by the last try at its deadline: no check had come"),
        _field("weight", pa.float64(), "how many operations the row stands for: over 1 where they are sampled"),
    ],
    metadata={"aiopurgatory.schema_version": str(SCHEMA_VERSION)},
)

_COUNTS: Final = {
    "pending": "operations that wait",
    "watched": "watch entries",
    "keys": "keys with watch entries",
    "completed": "operations that ended so, since the start; so are all that follow",
    "expired": "",
    "cancelled": "",
    "failed": "",
    "missed_triggers": "completed in the last try at the deadline",
    "refused": "because max_pending were waiting",
    "undelivered": "results that nobody took, given back",
    "checks": "of a key that was watched",
    "checks_without_effect": "that ended nothing",
    "cascaded": "moves to a finer level of the timing wheel",
    "wakeups": "of the clock task",
    "purges": "sweeps of all lists",
    "purged": "entries that those dropped",
    "dropped_rows": "rows that the journal of this instance could not keep",
}

_SETTINGS: Final = {
    "tick_ns": "of its timer; null in files of older versions, as are all that follow",
    "wheel_size": "buckets per level of its timing wheel",
    "purge_interval": "ended entries until it sweeps all lists; 0: they leave at once",
}

STATISTICS: Final = pa.schema(
    [
        *_WHOSE,
        _field("at", _INSTANT, "when"),
        *(_field(name, pa.int64(), about) for name, about in _COUNTS.items()),
        *(_field(name, pa.int64(), about, True) for name, about in _SETTINGS.items()),
    ],
    metadata={"aiopurgatory.schema_version": str(SCHEMA_VERSION)},
)
