"""Finds impossible rows of a journal. They are quarantined, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Final

import numpy as np
import pyarrow as pa

from aiopurgatory.journal import schema

from ..minutes.columns import Array, Columns
from ..minutes.units import DAY, EPOCH, LAST_YEAR, OUTCOMES
from .journal_tables import OPERATIONS, Table

# No process lives that long, and all sums of such times stay in 64 bits.
LONGEST: Final = 366 * DAY
LARGEST_WEIGHT: Final = 1e9
LONGEST_NAME: Final = 255

Rule = tuple[str, Array]


def judge(columns: Columns, table: Table, file_day: date) -> tuple[Array, list[str]]:
    """Return for each row the number of the first rule that it breaks, from 1 (0: a good row), and the rules.

    Args: file_day: the day of the file's folder.
    """
    broken = np.zeros(len(columns), np.int16)
    names = []
    for name, breaks in _rules(columns, table, file_day):
        names.append(name)
        if breaks.any():
            broken[breaks & (broken == 0)] = len(names)
    return broken, names


def ended_us(columns: Columns, table: Table) -> Array:
    """Return the microsecond that decides on a row's day. Wraps round beyond 64 bits."""
    first, *more = (columns.numbers(name) for name in table.ended)
    return first + more[0] if more else first


def _rules(columns: Columns, table: Table, file_day: date) -> Iterator[Rule]:
    yield from _common(columns, table)
    yield from _operations(columns) if table is OPERATIONS else _statistics(columns)
    # A file is begun while its rows come in: none is more than a day away, however late it is delivered.
    day, ended = (file_day - EPOCH).days * DAY, ended_us(columns, table)
    yield "time not of its file's day", (ended < day - DAY) | (ended >= day + 2 * DAY)
    first = columns.numbers(table.ended[0])
    too_late = (date(LAST_YEAR + 1, 1, 1) - EPOCH).days * DAY
    yield f"time not of the years 1970 to {LAST_YEAR}", (first < 0) | (ended >= too_late)


def _common(columns: Columns, table: Table) -> Iterator[Rule]:
    version = columns.numbers("schema_version") != schema.SCHEMA_VERSION
    unknown = columns.is_null("schema_version")
    yield "schema_version is unknown", version if unknown is None else version | unknown
    for each in table.arrow:
        null = columns.is_null(each.name)
        if not each.nullable and null is not None:
            yield f"{each.name} is null", null
    codes, names = columns.codes("purgatory")
    bad = [not 1 <= len(name.encode()) <= LONGEST_NAME for name in names]
    yield f"purgatory is not of 1 to {LONGEST_NAME} bytes", np.array([*bad, False])[codes]


def _operations(columns: Columns) -> Iterator[Rule]:
    outcome = columns.outcomes
    yield "outcome is unknown", outcome < 0
    yield "sequence is negative", columns.numbers("sequence") < 0
    yield "key_count is not positive", columns.numbers("key_count") < 1
    for name in ("waited_us", "timeout_us", "lateness_us"):
        yield f"{name} is negative", columns.numbers(name) < 0
        if name != "timeout_us":
            yield f"{name} is longer than a year", columns.numbers(name) > LONGEST
    no_lateness = columns.is_null("lateness_us")
    is_late = np.ones(len(columns), bool) if no_lateness is None else ~no_lateness
    yield "lateness_us without expiring, or the reverse", is_late != (outcome == OUTCOMES.index("expired"))
    missed = columns.numbers("missed_trigger")
    yield "missed_trigger without completing", missed & (outcome != OUTCOMES.index("completed"))
    weight = columns.numbers("weight")
    yield "weight is not from 1 to 1e9", ~((weight >= 1) & (weight <= LARGEST_WEIGHT))


def _statistics(columns: Columns) -> Iterator[Rule]:
    for each in schema.STATISTICS:
        if each.type == pa.int64():
            yield f"{each.name} is negative", columns.numbers(each.name) < 0
