"""Compares the measures of each day with the day before."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

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
    by_day: dict[date, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in days.to_pylist():
        by_day.setdefault(row["date"], {})[row["purgatory"], row["kind"]] = row
    rows = []
    for day, now in by_day.items():
        before = by_day.get(day - timedelta(days=1))
        if before is None:
            continue
        for name in now.keys() | before.keys():
            pair = before.get(name, {}), now.get(name, {})
            if max(each.get("operations", 0.0) for each in pair) >= FEWEST_COMPARED:
                named: dict[str, Any] = {"date": day, "purgatory": name[0], "kind": name[1]}
                rows += [named | difference for difference in _differences(*pair)]
    order = [("date", "descending"), ("size", "descending"), *((name, "ascending") for name in (*KEYS, "measure"))]
    table = pa.Table.from_pylist(rows, CHANGES)
    sizes = pa.array([abs(row["change"]) for row in rows], pa.float64())
    return table.append_column("size", sizes).sort_by(order).select(CHANGES.names)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for measure in COMPARED:
        was, is_now = before.get(measure) or 0.0, now.get(measure) or 0.0
        change = (is_now - was) / max(abs(was), abs(is_now)) if was != is_now else 0.0
        found.append({"measure": measure, "before": was, "now": is_now, "change": change})
    return found
