"""Formats numbers, times and names for people, and escapes them for HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

_LONGEST: Final = 120
_UNITS: Final = (("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("µs", 1.0))
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Markup(str):
    """Trusted HTML. Every other string is escaped."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape *value*, unless it is Markup already."""
    return (
        value
        if isinstance(value, Markup)
        else Markup(html.escape(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value))))
    )


def name(value: str) -> Markup:
    """Format a name from the journal: isolated from the text around it, and shortened in the middle if very long."""
    if len(value) <= _LONGEST:
        return Markup(f"<bdi>{text(value)}</bdi>")
    short = f"{value[: _LONGEST - 30]} … {value[-27:]}"
    return Markup(f'<bdi title="{text(value)}">{text(short)}</bdi>')


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1) -> Markup:
    """Return a table. The first *words* columns are text, the others numbers."""
    kinds = ["word" if number < words else "number" for number in range(len(heads))]

    def line(tag: str, cells: Sequence[object]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return "<tr>" + "".join(f'<{tag} class="{kind}">{text(cell)}</{tag}>' for kind, cell in pairs) + "</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return Markup(f'<div class="wide"><table><thead>{line("th", heads)}</thead>\n<tbody>{body}</tbody></table></div>')


def count(value: float | None) -> str:
    """Format a count: 1,234; fractions below 100 keep three digits."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 0.001:
        return f"{value:.3f}".rstrip("0") if abs(value) < 1 else f"{value:.3g}"
    return "< 0.001"


def share(value: float | None) -> str:
    """Format a share: 12.3%, 0.25%. Only 0 is 0%, and only 1 is 100%."""
    if value is None or not math.isfinite(value):
        return "-"
    if 0 < value < 0.00005:
        return "< 0.01%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.0%}" if value in (0, 1) else f"{value:.1%}"


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


def moment(when: datetime) -> Markup:
    """Format a time to the minute. *when* is in UTC."""
    return unbroken(f"{when:%Y-%m-%d %H:%M}")


def unbroken(value: object) -> Markup:
    """Keep *value* on one line."""
    return Markup(f'<span class="unbroken">{text(value)}</span>')
