"""The pieces of the page: numbers in words, escaped names, tables, and plots as inline SVG.

Plots stretch with the page while their text keeps its size, and take their colours from its CSS. The outer SVG has no
view box, so percentages place labels along the width. An inner SVG holds the data and is stretched to the width; its
lines keep their thickness.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor, log10
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
#: Heights of a plot with their labels, from its lowest to its highest.
Ticks: TypeAlias = Sequence[tuple[float, str]]

MINUTE: Final = 60
DAY: Final = 86_400
_LONGEST: Final = 120
_UNITS: Final = (("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("µs", 1.0))
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Round steps of time, in seconds.
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)
_DURATIONS: Final = (*(10.0**n for n in range(8)), 60e6, 600e6, 3600e6, 36_000e6, 864_000e6, 8_640_000e6)
_MOST_STEPS: Final = 720
_TICKS: Final = 7
_WIDTH, _HEIGHT = 10_000, 1_000  # of the inner picture, in its own units
_TOP, _TALL = 8, 120  # pixels


class Markup(str):
    """Trusted HTML. Every other string is escaped."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape *value*, unless it is Markup already."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def name(value: str) -> Markup:
    """Format a name from the journal: isolated from the text around it, and shortened in the middle if very long."""
    short = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 30]} … {value[-27:]}"
    return Markup(f'<bdi title="{text(value)}">{text(short)}</bdi>')


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1, nothing: str = "None.") -> Markup:
    """Return a table, or *nothing* if it has no rows. The first *words* columns are text, the others numbers."""
    if not rows:
        return Markup(f"<p>{nothing}</p>")
    kinds = ["word"] * words + ["number"] * (len(heads) - words)

    def line(tag: str, cells: Sequence[object]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return "<tr>" + "".join(f'<{tag} class="{kind}">{text(cell)}</{tag}>' for kind, cell in pairs) + "</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return Markup(f'<div class="wide"><table><thead>{line("th", heads)}</thead>\n<tbody>{body}</tbody></table></div>')


def count(value: float) -> str:
    """Format a count: 1,234; fractions below 100 keep three digits."""
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else "< 0.001"


def share(value: float) -> str:
    """Format a share: 12.3%, 0.25%. Only 0 is 0%, and only 1 is 100%."""
    if 0 < value < 0.00005:
        return "< 0.01%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    return f"{value:.{0 if value in (0, 1) else 2 if value < 0.01 else 1}%}"


def duration(microseconds: float) -> str:
    """Format a time as 250 ms, 13 s or 1.5 h, with at most three significant digits."""
    if microseconds <= 0:
        return "0 s"
    rounded = float(f"{microseconds:.3g}")  # 999.9 ms is 1 s
    unit, size = next((each for each in _UNITS if rounded >= each[1]), _UNITS[-1])
    return f"{count(float(f'{microseconds / size:.3g}'))} {unit}"


@dataclass(frozen=True)
class Axis:
    """Equal steps; the first and the last may reach beyond *start* and *end*. Seconds since 1970."""

    start: float
    end: float
    step: int

    @property
    def edges(self) -> Floats:
        """The bounds of the steps."""
        return np.arange(self.start // self.step, -(-self.end // self.step) + 1, dtype=np.float64) * self.step

    @property
    def seconds(self) -> Floats:
        """How many seconds of each step lie between start and end."""
        return np.diff(np.clip(self.edges, self.start, self.end))


def axis_of(first: int | None, last: int | None, *, unit: int) -> Axis:
    """Return the time axis from the *first* minute or second to the *last*. The *unit* is its shortest step."""
    if first is None or last is None:
        return Axis(0, MINUTE, MINUTE)
    end = last + unit
    step = next((each for each in _STEPS if each >= unit and (end - first) / each <= _MOST_STEPS), _STEPS[-1])
    return Axis(first, end, step)


def linear(highest: float) -> Ticks:
    """From 0 to a round number that is not below *highest*."""
    power = 10.0 ** floor(log10(highest or 1.0))
    top = next(power * n for n in (1, 1.5, 2, 3, 4, 6, 8, 10, 15) if highest <= power * n)
    return [(each, count(each)) for each in (0.0, top / 2, top)]


def logarithmic(lowest: float, highest: float) -> Ticks:
    """Logarithms of round durations in microseconds, around *lowest* to *highest*."""
    bottom = max((each for each in _DURATIONS[:-1] if each <= lowest), default=_DURATIONS[0])
    top = min((each for each in _DURATIONS if each >= highest and each > bottom), default=_DURATIONS[-1])
    return [(log10(each), duration(each)) for each in _DURATIONS if bottom <= each <= top]


def figure(title: str, axis: Axis, ticks: Ticks, drawn: Sequence[tuple[str, str, Floats]]) -> Markup:
    """Return a plot with its title and legend.

    Args:
        drawn: the label, CSS classes and values by step of each series. Later ones are painted over earlier ones.
            The classes are a colour, and area, line, or dashed.
    """
    legend = "".join(f'<span class="{classes}"><i></i>{text(label)}</span>' for label, classes, _ in drawn)
    paths = "".join(
        f'<path class="{classes}" d="{_path(axis, ticks, values, is_area="area" in classes)}"/>'
        for _, classes, values in drawn
    )
    return Markup(
        f"<figure><figcaption><b>{text(title)}</b><span>{legend}</span></figcaption>"
        f'<div class="plot"><svg role="img" aria-label="{text(title)}" width="100%" height="{_TOP + _TALL + 36}">'
        f"{_rules(ticks)}{_dates(axis)}"
        f'<svg y="{_TOP}" width="100%" height="{_TALL}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f"{paths}</svg></svg></div></figure>\n"
    )


def _path(axis: Axis, ticks: Ticks, values: Floats, *, is_area: bool) -> str:
    """Return *values* as steps, broken where one is NaN. Neighbours of the same height are one step."""
    share_of_axis = (np.clip(axis.edges, axis.start, axis.end) - axis.start) / (axis.end - axis.start)
    xs = np.rint(_WIDTH * share_of_axis).astype(int).tolist()
    low, high = ticks[0][0], ticks[-1][0]
    ys = np.rint(_HEIGHT * (high - np.clip(np.nan_to_num(values), low, high)) / (high - low)).astype(int).tolist()
    turns = np.flatnonzero(np.diff(~np.isnan(values), prepend=False, append=False)).tolist()
    paths = []
    for a, b in zip(turns[::2], turns[1::2], strict=True):
        steps = "".join(f"H{xs[n]}V{ys[n]}" for n in range(a + 1, b) if ys[n] != ys[n - 1])
        paths.append(f"M{xs[a]} {ys[a]}{steps}H{xs[b]}{f'V{_HEIGHT}H{xs[a]}Z' if is_area else ''}")
    return "".join(paths)


def _rules(ticks: Ticks) -> str:
    lines = []
    for value, label in ticks:
        y = f"{_TOP + _TALL * (ticks[-1][0] - value) / (ticks[-1][0] - ticks[0][0]):.1f}"
        lines.append(f'<line x2="100%" y1="{y}" y2="{y}"/><text class="y" x="-8" y="{y}" dy=".32em">{label}</text>')
    return "".join(lines)


def _dates(axis: Axis) -> str:
    """Draw ticks at round times. The date stands under the first tick of the axis and of each day."""
    span = axis.end - axis.start
    step = next((each for each in _STEPS if span / each <= _TICKS), int(span / _TICKS) // DAY * DAY)
    drawn, day = [], ""
    for each in np.arange(-(-axis.start // step) * step, axis.end + 0.5, step):
        x = 100 * (each - axis.start) / span
        before, (day, time) = day, f"{datetime.fromtimestamp(float(each), UTC):%Y-%m-%d %H:%M:%S}".split()
        lines = [*([] if step >= DAY else [time.removesuffix(":00")]), *([] if day == before else [day])]
        kind = "x start" if x < 3 else "x end" if x > 97 else "x"
        spans = "".join(f'<tspan x="{x:.2f}%" dy="{1.25 * n}em">{line}</tspan>' for n, line in enumerate(lines))
        drawn.append(f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{_TOP + _TALL}" y2="{_TOP + _TALL + 5}"/>')
        drawn.append(f'<text class="{kind}" y="{_TOP + _TALL + 18}">{spans}</text>')
    return "".join(drawn)
