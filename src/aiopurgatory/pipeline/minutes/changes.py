"""Compares the measures of each day with the day before."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .measures import KEYS

#: The measures to compare, for kinds with at least FEWEST_COMPARED operations.
COMPARED: Final = (
    "operations",
    "expired_share",
    "failed_share",
    "cancelled_share",
    "missed_triggers",
    "waited_p50_us",
    "waited_p99_us",
    "lateness_p99_us",
    "pending_peak",
)
FEWEST_COMPARED: Final = 100
CHANGES: Final = pa.schema(
    [
        ("date", pa.date32()),
        *((name, pa.string()) for name in (*KEYS, "measure")),
        *((name, pa.float64()) for name in ("before", "now", "change")),
    ]
)


def changes(days: pa.Table) -> pa.Table:
    """Days -> CHANGES between consecutive days, the largest first.

    ``change`` is (now - before) / the larger of both: from -1 (gone) to 1 (new).
    """
    now = days.select(["date", *KEYS, *COMPARED])
    next_day = pa.array(now["date"].cast(pa.int32()).to_numpy() + 1).cast(pa.date32())
    before = now.set_column(0, "date", next_day)
    both = now.join(before, ["date", *KEYS], join_type="full outer", right_suffix=" before")
    known = [pc.is_in(both["date"], value_set=each["date"].unique()) for each in (now, before)]
    both = both.filter(pc.and_(*known))
    pairs = {name: [np.nan_to_num(both[each].to_numpy()) for each in (f"{name} before", name)] for name in COMPARED}
    enough = pa.array(np.maximum(*pairs["operations"]) >= FEWEST_COMPARED)
    tables = []
    for name, (was, is_now) in pairs.items():
        largest = np.maximum(np.abs(was), np.abs(is_now))
        change = (is_now - was) / np.where(largest > 0, largest, 1)
        columns = [both[each] for each in ("date", *KEYS)]
        tables.append(
            pa.table([*columns, pa.repeat(name, len(both)), was, is_now, change], schema=CHANGES).filter(enough)
        )
    table = pa.concat_tables(tables)
    order = [("date", "descending"), ("size", "descending"), *((name, "ascending") for name in (*KEYS, "measure"))]
    return table.append_column("size", pc.abs(table["change"])).sort_by(order).select(CHANGES.names)
