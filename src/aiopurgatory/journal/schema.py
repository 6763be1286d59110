"""The schema of a journal, for its writer and its readers.

A journal is a folder that Spark, DuckDB and pandas read as it is:

    operations/date=2026-11-21/hour=13/<instance>-<number>.parquet    one row per operation that ended
    statistics/date=2026-11-21/hour=13/<instance>-<number>.parquet    one row per snapshot of Purgatory.statistics():
                                                                      when it opens, at intervals, and when it closes

``date`` and ``hour`` (UTC) come from a file's first row; its other rows may belong to other hours. Files are written
atomically: a name that begins with a dot is a file still being written. Columns are only ever added. A change to the
meaning of a column makes a new version.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..core.kit import Outcome
from .rows import KEY_COUNT_UNIT, OUTCOME_UNIT, OUTCOMES, SERIES_UNIT, JournalRows

#: In the column ``schema_version`` of every row.
SCHEMA_VERSION: Final = 1

_INSTANT: Final = pa.timestamp("us", tz="UTC")


def _field(name: str, kind: pa.DataType, about: str, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={"comment": about})


_WHOSE: Final = [
    _field("schema_version", pa.int16(), "version of the row's schema"),
    _field("purgatory", pa.string(), "the purgatory's name"),
    _field("instance", pa.string(), "one run of one process: host, process id, and a random part"),
]

OPERATIONS: Final = pa.schema(
    [
        *_WHOSE,
        _field(
            "sequence",
            pa.int64(),
            "number of the ended operation in this instance, from 0; gaps were sampled out or dropped",
        ),
        _field("kind", pa.string(), "the operation's class"),
        _field("key_count", pa.int32(), "how many watch keys it had"),
        _field("key_hash", pa.int64(), "hash of the first key's repr, the same in all instances with the same salt"),
        _field("key", pa.string(), "the first key's repr; null unless the journal was told to keep keys", True),
        _field("watched_at", _INSTANT, "when it was watched"),
        _field("waited_us", pa.int64(), "time from then to its end; 0: it never had to wait"),
        _field("timeout_us", pa.int64(), "its timeout, the last one if it was rescheduled; null: no deadline", True),
        _field("outcome", pa.string(), "completed, expired, cancelled or failed"),
        _field("lateness_us", pa.int64(), "time from its deadline to its last try if it expired, else null", True),
        _field("missed_trigger", pa.bool_(), "completed by the last try at its deadline, since no check came"),
        _field("weight", pa.float64(), "how many operations the row stands for: over 1 if sampled"),
    ],
    metadata={"aiopurgatory.schema_version": str(SCHEMA_VERSION)},
)

_COUNTS: Final = {
    "pending": "operations waiting",
    "watched_entries": "operations under watch keys, once per key",
    "keys": "keys with watch entries",
    "completed": "operations completed since the start; all columns below also count since the start",
    "expired": "operations expired",
    "cancelled": "operations cancelled",
    "failed": "operations failed",
    "missed_triggers": "operations completed by the last try at their deadline",
    "refused": "operations refused because max_pending were waiting",
    "undelivered": "results that nobody took",
    "checks": "checks of watched keys",
    "checks_without_effect": "checks that ended no operation and woke no task",
    "cascaded": "moves to a finer level of the timing wheel",
    "wakeups": "wake-ups of the clock task",
    "purges": "sweeps of all watchers",
    "purged": "entries removed by purges",
    "dropped_rows": "rows that this instance's journal dropped",
}

#: Columns that came later.
_LATER: Final = {
    "tick_ns": "tick of the timer; null in files of older versions, as are the columns below",
    "wheel_size": "buckets per level of the timing wheel",
    "purge_interval": "ended operations per purge; 0: their entries are removed at once",
    "checks_of_twins": "examined checks of an unwatched key of which a twin was watched, as 7 and '7'",
    "reads": "reads of awaited conditions that checks called for",
    "reads_in_vain": "how many of these found nothing",
    "collector_us": "time of this process in Python's garbage collector",
}

_MISSED: Final = pa.struct([("kind", pa.string()), ("key", pa.string()), ("operations", pa.int64())])

STATISTICS: Final = pa.schema(
    [
        *_WHOSE,
        _field("at", _INSTANT, "time of the snapshot"),
        *(_field(name, pa.int64(), about) for name, about in _COUNTS.items()),
        *(_field(name, pa.int64(), about, True) for name, about in _LATER.items()),
        _field("missed_kinds", pa.list_(_MISSED), "missed_triggers by class and kind of key; null as those", True),
    ],
    metadata={"aiopurgatory.schema_version": str(SCHEMA_VERSION)},
)


def operations_table(rows: JournalRows, instance: str, series: list[tuple[str, str]], shares: list[float]) -> pa.Table:
    """Return *rows* as a table of the schema OPERATIONS, by numpy and Arrow. Runs in a thread.

    Args:
        series: names of purgatory and class, by number.
        shares: the share of operations that were kept, by outcome.
    """
    count = len(rows)
    codes = _numbers("i8", rows.codes)
    numbers = codes % KEY_COUNT_UNIT // SERIES_UNIT
    outcomes = codes % SERIES_UNIT // OUTCOME_UNIT
    ended_at, waited = _numbers("f8", rows.ended_at), _numbers("f8", rows.waited)
    timeouts = _numbers("f8", rows.timeouts)
    expired = outcomes == OUTCOMES.index(Outcome.EXPIRED)
    lateness = np.zeros(count)
    lateness[expired] = rows.lateness
    sequences = _numbers("i8", rows.sequences) if rows.sequences else rows.first + np.arange(count)
    columns: dict[str, Any] = {
        "schema_version": np.full(count, SCHEMA_VERSION, "i2"),
        "purgatory": _named(numbers, [name for name, _ in series]),
        "instance": _named(np.zeros(count), [instance]),
        "sequence": sequences,
        "kind": _named(numbers, [kind for _, kind in series]),
        "key_count": (codes // KEY_COUNT_UNIT).astype("i4"),
        "key_hash": _numbers("i8", rows.key_hashes),
        "key": pa.array(rows.keys, pa.string()) if rows.keys else pa.nulls(count, pa.string()),
        "watched_at": pa.array(_microseconds(ended_at - waited)).view(_INSTANT),
        "waited_us": _microseconds(waited),
        "timeout_us": pa.array(_microseconds(timeouts), mask=np.isinf(timeouts)),
        "outcome": _named(outcomes, [outcome.value for outcome in OUTCOMES]),
        "lateness_us": pa.array(_microseconds(lateness), mask=~expired),
        "missed_trigger": (codes % OUTCOME_UNIT).astype(bool),
        "weight": 1.0 / np.array(shares)[outcomes],
    }
    arrays = [pa.array(column) for column in columns.values()]
    # Names stay a dictionary on their way to the file, where they are one anyway.
    fields = [field.with_type(array.type) for field, array in zip(OPERATIONS, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, OPERATIONS.metadata))


def _numbers(kind: str, numbers: list[Any]) -> Any:
    return np.fromiter(numbers, kind, len(numbers))  # in a sixth of np.array()'s time for a list


def _microseconds(seconds: Any) -> Any:
    return np.rint(np.where(np.isinf(seconds), 0.0, seconds) * 1e6).astype("i8")


def _named(codes: Any, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype("i4")), pa.array(names, pa.string()))
