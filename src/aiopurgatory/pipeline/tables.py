"""The tables of the pipeline: their names, columns, and units.

**The journal**, as Spark reads it: JOURNAL. Whole numbers are 64 bits wide, so that files with narrower ones are read.

**Sums** (SUMS) hold sums over the good rows of the journal, and its quarantined rows. Sums of two batches add up to
the sums of both (sums.total). Every count is a sum of ``weight``: a sampled row stands for many operations. tables.toml
has the columns.

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
by their reason. ``missed`` tells which kinds of keys were not checked. ``dropped_rows`` never reached the journal.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
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
    schema.STATISTICS.field("missed_kinds").type: "ARRAY<STRUCT<kind:STRING,key:STRING,operations:BIGINT>>",
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


#: Sums by time -> the day of a row.
DATES: Final = {
    **dict.fromkeys(["daily", "waiting", "losses"], "date"),
    **dict.fromkeys(["quarantined_operations", "quarantined_statistics"], "try_cast(date AS DATE)"),
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

_PARTS: Final = {
    **_FIELDS,
    "measures": _of("DOUBLE", *MEASURES),
    "outcomes": _of("DOUBLE", *OUTCOMES),
    "work": _of("BIGINT", *COUNTERS, *OF_PROCESS, *LEVELS),
}
_TABLES: Final = tomllib.loads(files("aiopurgatory.pipeline").joinpath("tables.toml").read_text("utf-8"))
SUMS, REPORT = (
    {name: columns.format(**_PARTS) for name, columns in _TABLES[kind].items()} for kind in ("sums", "report")
)
PLACES: Final[str] = _TABLES["places"]
