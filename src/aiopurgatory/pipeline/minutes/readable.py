"""Formats numbers for people."""

from __future__ import annotations

import math
from typing import Final

_UNITS: Final = (("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("µs", 1.0))


def duration(microseconds: float | None) -> str:
    """Format a time as 250 ms, 13 s or 1.5 h, with at most three significant digits; "-" if it is unknown."""
    if microseconds is None or not math.isfinite(microseconds):
        return "-"
    if microseconds <= 0:
        return "0 s"
    rounded = float(f"{microseconds:.3g}")  # 999.9 ms is 1 s
    unit, size = next(((unit, size) for unit, size in _UNITS if rounded >= size), _UNITS[-1])
    value = float(f"{microseconds / size:.3g}")
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
