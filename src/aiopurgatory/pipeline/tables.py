"""The tables of the pipeline: their names, columns, and units.

**The journal**, as Spark reads it: JOURNAL. Whole numbers are 64 bits wide, so that files with narrower ones are read.

**Sums** (SUMS) hold no row of the journal, but sums over its good rows. Those of two batches add up to those of both
(sums.total). Every count is a sum of ``weight``: a sampled row stands for many operations.

| table     | one row per                                                     | its counts                          |
| --------- | --------------------------------------------------------------- | ----------------------------------- |
| activity  | minute, series, outcome, missed_trigger, waited, lateness       | operations, rows                    |
| daily     | date, series, outcome, missed_trigger, waited, lateness         | operations                          |
| hours     | hour, series, KEYS, timeout, key_count                          | operations, total, spans            |
| waiting   | date, second, series                                            | change                              |
| ends      | second, series, outcome (only of batches within an hour)        | operations                          |
| keys      | purgatory, key_hash                                             | operations, watched                 |
| names     | purgatory, key_hash (only if the journal keeps keys)            | key, one of its names               |
| snapshots | row of the journal's statistics                                 |                                     |
| seen      | instance, word                                                  | bits                                |
| files     | file of the journal that was read                               | rows_in, bad, duplicates            |
| losses    | date, what                                                      | rows                                |
| touched   | date whose report a batch changes, attempt                      |                                     |
| sealed    | journal, day: its folder of this day is not listed any more     |                                     |
| forgotten | date before which the report leaves out all days                |                                     |

``series`` is a purgatory and kind, as a number: the table ``hours`` has their names. ``outcome`` is its place in
OUTCOMES. ``minute``, ``hour`` and ``second`` count from 1970, in UTC, and tell when an operation ended. ``waited`` and
``lateness`` are numbers of buckets: bucket b holds microseconds over GROWTH ** (b - 1) up to GROWTH ** b, bucket -1
holds 0. ``total`` sums weight * microseconds of the timeout. ``timeout`` is a bin:
floor(ln(microseconds + 1) * BINS); null: no timeout. ``key_count`` is at most MOST_KEYS. ``first_us`` and ``last_us``
are the first and the last end in that hour, in microseconds since 1970.

``change`` is the change in the number of waiting operations that a whole second sees first. An operation that waits
over midnight leaves the day before and enters the next, so the changes of each date sum to 0. ``watched`` sums
weight * key_count. A word is ``sequence div 64``; its bits tell which of its 64 numbers have been counted. A file of
the same path, length and ``modified_us`` is read once; ``problem`` says why its rows are not counted. ``day`` is in the
name of its folder, and ``read_us`` is when it was read, in microseconds since 1970.

**Tables of the report** (REPORT) are for people, the page, and other tools. ``covered_s`` is how many seconds of the
minute or day the purgatory's journal covers. Percentiles are within 2 %, null where nothing
ended. ``pending`` is the number of waiting operations. ``change`` is (now - before) / the larger of both, from
-1 (gone) to 1 (new). ``work`` has the growth of counters, and the largest levels of each instance, added up.
``collector_us`` is the time that processes spent in Python's garbage collector. ``timeouts`` tells how many operations
would have expired with shorter timeouts, and how long they would have waited. ``lost`` counts rows that are in no sum,
by their reason. ``dropped_rows`` never reached the journal.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from aiopurgatory import Outcome
from aiopurgatory.journal import schema

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
KEYS: Final = ("purgatory", "kind")
#: The largest relative error of a percentile, and the factor between two buckets that follows from it.
#: Source: DDSketch (Masson, Rim, Lee, VLDB 2019).
ERROR: Final = 0.02
GROWTH: Final = (1 + ERROR) / (1 - ERROR)
#: Bins of timeouts, per factor of e.
BINS: Final = 64
#: An operation with more keys counts as one with this many.
MOST_KEYS: Final = 64

ARROW: Final = {"operations": schema.OPERATIONS, "statistics": schema.STATISTICS}
_TYPES: Final = {
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.float64(): "DOUBLE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}
_FIELDS: Final = {
    name: ", ".join(f"{each.name} {_TYPES.get(each.type, 'BIGINT')}" for each in table) for name, table in ARROW.items()
}
# Folders are strings: one that is no date must break a rule, not the query.
JOURNAL: Final = {name: f"{fields}, date STRING, hour STRING" for name, fields in _FIELDS.items()}


def columns(schema: str) -> list[str]:
    """Return the names of the columns of a schema in this module."""
    return [each.split()[0] for each in schema.split(", ")]


def _of(kind: str, *names: str) -> str:
    return ", ".join(f"{name} {kind}" for name in names)


_BY: Final = "purgatory STRING, kind STRING"
_HISTOGRAM: Final = (
    "series BIGINT, outcome TINYINT, missed_trigger BOOLEAN, waited SMALLINT, lateness SMALLINT, operations DOUBLE"
)
SUMS: Final = {
    "activity": f"minute INT, {_HISTOGRAM}, rows BIGINT",
    "daily": f"date DATE, {_HISTOGRAM}",
    "hours": f"hour INT, series BIGINT, {_BY}, timeout INT, key_count INT, "
    "operations DOUBLE, total DOUBLE, first_us BIGINT, last_us BIGINT",
    "waiting": "date DATE, second BIGINT, series BIGINT, change DOUBLE",
    "ends": "second BIGINT, series BIGINT, outcome TINYINT, operations DOUBLE",
    "keys": "purgatory STRING, key_hash BIGINT, operations DOUBLE, watched DOUBLE",
    "names": "purgatory STRING, key_hash BIGINT, key STRING",
    "snapshots": _FIELDS["statistics"],
    "seen": "instance STRING, word BIGINT, bits BIGINT, rows BIGINT, named BIGINT",
    "files": "table STRING, path STRING, length BIGINT, modified_us BIGINT, problem STRING, "
    "rows_in BIGINT, bad BIGINT, duplicates BIGINT, day STRING, read_us BIGINT",
    "losses": "date DATE, what STRING, rows BIGINT",
    "touched": "date DATE, attempt STRING",
    "sealed": "journal STRING, day STRING",
    "forgotten": "before DATE",
}
#: Sums by time -> the day of a row.
DATES: Final = {
    **dict.fromkeys(["daily", "waiting", "losses"], "date"),
    "activity": "date_from_unix_date(CAST(minute div 1440 AS INT))",
    "hours": "date_from_unix_date(CAST(hour div 24 AS INT))",
    "ends": f"date_from_unix_date(CAST(second div {DAY // SECOND} AS INT))",
    "snapshots": "to_date(at)",
}

WAITED: Final = {"waited_p50_us": 0.5, "waited_p90_us": 0.9, "waited_p99_us": 0.99, "waited_p999_us": 0.999}
LATENESS: Final = {"lateness_p50_us": 0.5, "lateness_p99_us": 0.99, "lateness_max_us": 1.0}
#: Of a minute or a day of a kind.
MEASURES: Final = (
    *("covered_s", "operations", *OUTCOMES, "missed_triggers", *(f"{name}_share" for name in OUTCOMES)),
    *(*WAITED, *LATENESS, "pending_mean", "pending_peak"),
)
#: Counters of the journal's statistics whose growth is the work of a purgatory.
WORK: Final = (
    *("checks", "checks_without_effect", "checks_of_twins", "reads", "reads_in_vain"),
    *("purges", "purged", "cascaded", "wakeups", "undelivered", "refused"),
)
#: The same for a report, but not for its page.
COUNTERS: Final = (*WORK, "completed")
#: Counters of the process, which all of its purgatories report.
OF_PROCESS: Final = ("dropped_rows", "collector_us")
#: Levels in the journal's statistics.
LEVELS: Final = ("pending", "watched_entries", "keys")
REPORT: Final = {
    "minutes": f"date DATE, {_BY}, minute TIMESTAMP, " + _of("DOUBLE", *MEASURES),
    "days": f"date DATE, {_BY}, " + _of("DOUBLE", *MEASURES),
    "changes": f"date DATE, {_BY}, measure STRING, before DOUBLE, now DOUBLE, change DOUBLE",
    "hot_keys": "purgatory STRING, place INT, key_hash BIGINT, key STRING, operations DOUBLE, share DOUBLE, "
    "keys_each DOUBLE",
    "work": "purgatory STRING, minute TIMESTAMP, " + _of("BIGINT", *COUNTERS, *OF_PROCESS, *LEVELS),
    "timeouts": f"{_BY}, timeout_us DOUBLE, is_in_use BOOLEAN, operations DOUBLE, expired_share DOUBLE, "
    "waited_mean_us DOUBLE",
    "lost": "date DATE, what STRING, rows BIGINT",
    "settings": "purgatory STRING, instances BIGINT, tick_s DOUBLE, wheel_size BIGINT, purge_interval BIGINT",
    "seconds": f"date DATE, {_BY}, second TIMESTAMP, " + _of("DOUBLE", *OUTCOMES, "pending"),
}
