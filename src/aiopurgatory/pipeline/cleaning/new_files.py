"""The work of a task of the stream: read each new file once, judge its rows, and reduce them to columns to sum."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from aiopurgatory.errors import PurgatoryError

from ..minutes.percentiles import NONE, bucket
from ..minutes.units import INSTANT, MINUTE, OUTCOMES, SECOND
from .columns import Columns
from .files import JournalFile, TornFileError, one_line, read
from .journal_tables import OPERATIONS
from .judging import ended_us, judge, outcomes

#: A good row has no reason. A row with a reason stands for ``rows`` rows of one file.
NEW_ROWS: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("kind", pa.string()),
        ("minute", pa.int64()),
        ("outcome", pa.int8()),
        ("waited", pa.int16()),
        ("lateness", pa.int16()),
        ("operations", pa.float64()),
        ("missed_triggers", pa.float64()),
        ("ended_at", INSTANT),
        ("reason", pa.string()),
        ("rows", pa.int64()),
        # No two rows have both in common, unless one is a copy.
        ("who", pa.string()),
        ("which", pa.int64()),
    ]
)
#: How far ahead a clock may be. One row from the future would make all others late.
AHEAD: Final = 3600 * SECOND
_ROWS_PER_BATCH: Final = 1 << 16


class UnreadableFileError(PurgatoryError):
    """A file of the journal cannot be read now."""


def new_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Paths of files, as Spark names them -> NEW_ROWS.

    A torn file becomes one row with the reason, and so does a file outside of the journal's folders.

    Raises: UnreadableFileError: a file cannot be read now, so its batch must be repeated.
    """
    for batch in batches:
        for path in batch.column(0).to_pylist():
            for rows in _read_file(path.removeprefix("file:")):
                yield from rows.to_batches(max_chunksize=_ROWS_PER_BATCH)


def _read_file(path: str) -> Iterator[pa.Table]:
    day = JournalFile(path, 0, 0).day
    left_out: dict[str, int] = {}
    try:
        if day is None:
            raise TornFileError("is in no date=.../hour=... folder", 0)
        for rows in read(path, OPERATIONS):
            columns = Columns(rows)
            broken, rules = judge(columns, OPERATIONS, day)
            future = ended_us(columns, OPERATIONS) > time.time_ns() // 1_000 + AHEAD
            broken[future & (broken == 0)] = len(rules) + 1
            rules.append("it ended in the future")
            for number, count in enumerate(np.bincount(broken).tolist()[1:]):
                if count:
                    left_out[rules[number]] = left_out.get(rules[number], 0) + count
            yield _added_up(columns.where(broken == 0))
    except TornFileError as error:
        left_out[f"{error.reason}, in {path}"] = error.rows
    except OSError as error:
        raise UnreadableFileError(
            f"a file cannot be read now; start the stream again when it can be: {path}: {one_line(error)}"
        ) from error
    reasons = [
        {"reason": reason, "rows": rows, "who": path, "which": number}
        for number, (reason, rows) in enumerate(left_out.items())
    ]
    yield pa.Table.from_pylist(reasons, NEW_ROWS)


def _added_up(rows: Columns) -> pa.Table:
    """Return good rows with the numbers of their buckets."""
    outcome, ended, weight = outcomes(rows), ended_us(rows, OPERATIONS), rows.numbers("weight")
    expired = outcome == OUTCOMES.index("expired")
    lateness = np.full(len(rows), NONE, np.int16)
    lateness[expired] = bucket(rows.numbers("lateness_us")[expired])
    columns = {
        "minute": ended // MINUTE,
        "outcome": outcome,
        "waited": bucket(rows.numbers("waited_us")),
        "lateness": lateness,
        "operations": weight,
        "missed_triggers": np.where(rows.numbers("missed_trigger"), weight, 0.0),
        "ended_at": ended,
        "which": rows.numbers("sequence"),
    }
    names = {"purgatory": "purgatory", "kind": "kind", "who": "instance"}
    arrays = []
    for field in NEW_ROWS:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name]).cast(field.type))
        elif field.name in names:
            arrays.append(rows.rows.column(names[field.name]).cast(field.type))
        else:
            arrays.append(pa.nulls(len(rows), field.type))
    return pa.table(arrays, schema=NEW_ROWS)
