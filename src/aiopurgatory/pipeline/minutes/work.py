"""Computes the work of purgatories from their counters, and counts the rows that journals dropped.

Work is the growth of a counter between two snapshots. Two tables hold it for a group of snapshots:

| table | one row per                           | its columns                                                  |
| ----- | ------------------------------------- | ------------------------------------------------------------ |
| work  | purgatory, minute                     | the growth of COUNTERS                                       |
| edges | purgatory, instance, at, is_last      | COUNTERS and SETTINGS of its first or its last snapshot      |

Edges connect a group of snapshots to the next one. Rows dropped by a journal belong to an instance. Each of its
purgatories reports them, so they count once, for the purgatory "".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .percentiles import Array
from .units import INSTANT, MINUTE

WORK: Final = ("checks", "checks_without_effect", "purges", "purged", "cascaded", "wakeups", "undelivered", "refused")
COUNTERS: Final = (*WORK, "dropped_rows")
SETTINGS: Final = ("tick_ns", "wheel_size", "purge_interval")
NAMES: Final = ("work", "edges")
_EDGES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("purgatory", "instance")),
        ("at", pa.int64()),
        ("is_last", pa.bool_()),
        *((name, pa.int64()) for name in (*COUNTERS, *SETTINGS)),
    ]
)
_GROWN: Final = pa.schema(
    [("purgatory", pa.string()), ("minute", pa.int64()), *((name, pa.int64()) for name in COUNTERS)]
)
DONE: Final = pa.schema([("purgatory", pa.string()), ("minute", INSTANT), *((name, pa.int64()) for name in WORK)])
LOST: Final = pa.schema([("date", pa.date32()), ("minute", INSTANT), ("what", pa.string()), ("rows", pa.int64())])
IN_USE: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("instances", pa.int64()),
        ("tick_s", pa.float64()),
        ("wheel_size", pa.int64()),
        ("purge_interval", pa.int64()),
    ]
)


def work_sums(snapshots: pa.Table) -> dict[str, pa.Table]:
    """Rows of statistics, without gaps in the snapshots of an instance -> NAMES."""
    schema = pa.schema([each for each in _EDGES if each.name != "is_last"])
    rows = snapshots.select(schema.names).cast(schema)
    own, whole = _without(rows, ["dropped_rows"]), _without(rows, WORK)
    whole = whole.set_column(0, "purgatory", pa.repeat("", len(rows)))
    ordered = _ordered(pa.concat_tables([own, whole]))
    follows = _follows(ordered)
    begins, ends = np.flatnonzero(~follows), np.flatnonzero(np.append(~follows[1:], True)[: len(ordered)])
    edges = ordered.take(np.concatenate([begins, ends]))
    edges = edges.append_column("is_last", pa.array(np.repeat([False, True], len(begins))))
    return {"work": _grown(ordered, follows), "edges": edges.select(_EDGES.names)}


def _without(rows: pa.Table, counters: Sequence[str]) -> pa.Table:
    zeros = pa.repeat(0, len(rows))
    for name in counters:
        rows = rows.set_column(rows.column_names.index(name), name, zeros)
    return rows


def work(grown: Sequence[pa.Table], edges: Sequence[pa.Table]) -> pa.Table:
    """Work and edges -> _GROWN of all minutes, with the growth between groups of snapshots.

    The first snapshot of an instance only sets the starting values. The journal takes it when a purgatory is opened.
    """
    ordered = _ordered(pa.concat_tables([*edges, _EDGES.empty_table()]))
    is_last = ordered.column("is_last").to_numpy()
    follows = _follows(ordered)
    follows[1:] &= is_last[:-1] & ~is_last[1:]
    every = pa.concat_tables([*grown, _grown(ordered, follows)])
    summed = every.group_by(["purgatory", "minute"]).aggregate([(name, "sum") for name in COUNTERS])
    summed = summed.rename_columns(_GROWN.names).select(_GROWN.names).cast(_GROWN)
    return summed.sort_by([("purgatory", "ascending"), ("minute", "ascending")])


def done(grown: pa.Table) -> pa.Table:
    """_GROWN -> DONE, by purgatory."""
    own = grown.filter(pc.field("purgatory") != "")
    return own.set_column(1, "minute", _instants(own)).select(DONE.names).cast(DONE)


def dropped(grown: pa.Table) -> pa.Table:
    """_GROWN -> LOST: the rows dropped by journals."""
    some = grown.filter((pc.field("purgatory") == "") & (pc.field("dropped_rows") > 0))
    at = _instants(some)
    return pa.table([at.cast(pa.date32()), at, pa.repeat("dropped", len(some)), some["dropped_rows"]], schema=LOST)


def _instants(grown: pa.Table) -> pa.Array:
    return pa.array(grown.column("minute").to_numpy() * MINUTE).cast(INSTANT)


def settings(edges: Sequence[pa.Table]) -> pa.Table:
    """Edges -> IN_USE: the settings of each purgatory's instances in their last snapshots."""
    ordered = _ordered(pa.concat_tables([*edges, _EDGES.empty_table()]))
    newest = ordered.filter(pa.array(np.append(~_follows(ordered)[1:], True)[: len(ordered)]))
    known = newest.filter((pc.field("purgatory") != "") & pc.field("tick_ns").is_valid())
    counts = known.group_by(["purgatory", *SETTINGS]).aggregate([([], "count_all")])
    ticks = counts["tick_ns"].to_numpy() / 1e9
    columns = [counts["purgatory"], counts["count_all"], ticks, counts["wheel_size"], counts["purge_interval"]]
    return pa.table(columns, schema=IN_USE).sort_by([(name, "ascending") for name in IN_USE.names])


def _ordered(rows: pa.Table) -> pa.Table:
    order = [name for name in ("purgatory", "instance", "at", "is_last") if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in order])


def _follows(ordered: pa.Table) -> Array:
    """Return a mask of the rows that follow one of the same purgatory and instance."""
    columns = (ordered.column(name).combine_chunks().dictionary_encode() for name in ("purgatory", "instance"))
    purgatory, instance = (
        np.append(False, codes[1:] == codes[:-1])[: len(codes)]
        for codes in (each.indices.to_numpy() for each in columns)
    )
    found: Array = purgatory & instance
    return found


def _grown(ordered: pa.Table, follows: Array) -> pa.Table:
    """Return the growth of the counters from row to row. A counter that fell was reset, so all of it is growth."""
    later = np.flatnonzero(follows)
    columns = {
        "purgatory": ordered.column("purgatory").take(later),
        "minute": ordered.column("at").to_numpy()[later] // MINUTE,
    }
    for name in COUNTERS:
        values = ordered.column(name).to_numpy()
        now, before = values[later], values[later - 1]
        columns[name] = np.where(now >= before, now - before, now)
    summed = pa.table(columns).group_by(["purgatory", "minute"]).aggregate([(name, "sum") for name in COUNTERS])
    return summed.rename_columns(_GROWN.names).cast(_GROWN)
