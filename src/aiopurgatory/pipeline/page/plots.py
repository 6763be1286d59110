"""Plots as inline SVG: they stretch with the page while their text keeps its size, and take their colours from its CSS.

The outer SVG has no view box, so percentages place labels along the width. An inner SVG holds the data and is stretched
to the width; its lines keep their thickness. All plots of a page share one time axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .wording import Markup, duration, text

Floats = npt.NDArray[np.float64]

MINUTE: Final = 60
DAY: Final = 86_400
_MOST_STEPS: Final = 720
_BY_SECOND: Final = 600
_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_WIDTH, _HEIGHT = 10_000, 1_000  # of the inner picture, in its own units
_TOP, _TALL = 8, 120  # pixels
_TICKS: Final = 7
_TIME_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400),
)
_DURATIONS: Final = (1, 10, 100, 1e3, 1e4, 1e5, 1e6, 10e6, 60e6, 600e6, 3600e6, 36_000e6, 864_000e6, 8_640_000e6)
_FINE_DURATIONS: Final = tuple(
    sorted(
        {*(n * 10**k for k in range(6) for n in (1, 2, 5)), *(n * 1e6 for n in (1, 2, 5, 10, 20, 30, 60)), *_DURATIONS}
    )
)


@dataclass(frozen=True)
class Axis:
    """Equal steps; the first and the last may reach beyond *start* and *end*. Seconds since 1970."""

    start: float
    end: float
    step: int

    @property
    def first(self) -> int:
        """The number of the first step since 1970."""
        return int(self.start // self.step)

    @property
    def count(self) -> int:
        return max(1, int(-(-self.end // self.step)) - self.first)

    @property
    def edges(self) -> Floats:
        """The bounds of the steps."""
        return np.arange(self.first, self.first + self.count + 1, dtype=np.float64) * self.step

    def dense(self, rows: Sequence[Any], name: str, missing: float) -> Floats:
        """The attribute *name* of *rows* with a ``step``, for all steps."""
        found = np.full(self.count, missing)
        found[[row.step for row in rows]] = [getattr(row, name) for row in rows]
        return found


def axis_of(first: int | None, last: int | None, *, by_second: bool) -> Axis:
    """Return the time axis from the *first* minute or second to the *last*."""
    if first is None or last is None:
        return Axis(0, MINUTE, MINUTE)
    if by_second:
        return Axis(first, last + 1, 1 if last + 1 - first <= _BY_SECOND else 10)
    end = last + MINUTE
    step = next((n for n in _MINUTES if (end - first) / (n * MINUTE) <= _MOST_STEPS), 0)
    days = -(-(end - first) // (DAY * _MOST_STEPS))
    return Axis(first, end, step * MINUTE or int(days) * DAY)


@dataclass(frozen=True)
class Scale:
    """Maps a value to a height from 0 to 1."""

    height: Callable[[Any], Any]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Drawn:
    """One series in a plot and in its legend."""

    label: str
    #: CSS class of its colour.
    colour: str
    path: str
    #: area, line, dashed or dotted
    style: str = "area"


def linear(highest: float) -> Scale:
    """From 0 to a round number above *highest*, with a few round ticks."""
    highest = highest if np.isfinite(highest) and highest > 0 else 1.0
    power = 10.0 ** np.floor(np.log10(highest))
    step = next(power * n for n in (0.25, 0.5, 1.0, 2.5, 5.0) if highest / (power * n) <= 4)
    steps = int(np.ceil(highest / step * 1.02))
    top = steps * step
    return Scale(lambda value: value / top, [(n / steps, _short(n * step)) for n in range(steps + 1)])


def _short(value: float) -> str:
    """1.5M, 250k, 0.25"""
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if value >= least:
            return f"{value / size:g}{unit}"
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def logarithmic(lowest: float, highest: float) -> Scale:
    """Durations in microseconds, with ticks at round ones around *lowest* to *highest*."""
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        lowest = highest = 1e3
    lowest, highest = max(lowest, 1.0), max(highest, 1.0)
    marks = _DURATIONS if highest / lowest > 50 else _FINE_DURATIONS
    below = [each for each in marks if each <= lowest]
    first = below[-1] if below else marks[0]
    last = next((each for each in marks if each >= highest and each > first), highest * 2)
    bottom, span = np.log(first), np.log(last / first)
    inside = [each for each in marks if first <= each <= last]
    shown = inside[:: max(1, -(-len(inside) // 6))]

    def height(value: Any) -> Any:
        return (np.log(np.maximum(value, first)) - bottom) / span

    return Scale(height, [(float(height(each)), duration(each)) for each in shown])


def stacked(axis: Axis, scale: Scale, values: Sequence[Floats]) -> list[str]:
    """Return the paths of *values* as steps, each on top of the last. Nothing is drawn where a value is 0."""
    paths, base = [], np.zeros(len(values[0]) if values else 0)
    edges = _across(axis, axis.edges)
    for each in values:
        upper = base + np.nan_to_num(each)
        lower, higher = (_down(scale.height(level)) for level in (base, upper))
        runs = _runs(np.nan_to_num(each) > 0)
        paths.append("".join(_band(edges, lower, higher, *run) for run in runs))
        base = upper
    return paths


def steps(axis: Axis, scale: Scale, values: Floats) -> str:
    """The path of *values* as a line of steps, broken where one is NaN."""
    edges, heights = _across(axis, axis.edges), _down(scale.height(values))
    runs = _runs(~np.isnan(values))
    return "".join(f"M{edges[a]} {heights[a]}{_along(edges, heights, range(a, b))}" for a, b in runs)


def whole_days(axis: Axis, starts: Sequence[float]) -> str:
    """The path of a band over each day that begins at one of *starts*."""
    bands = [_across(axis, np.array([start, start + DAY])) for start in starts]
    return "".join(f"M{a} 0H{b}V{_HEIGHT}H{a}Z" for a, b in bands if a < b)


def figure(title: str, about: str, axis: Axis, scale: Scale, drawn: Sequence[Drawn]) -> Markup:
    """Return the plot with its title and legend. *about* is its description for screen readers."""
    legend = "".join(f'<span class="{each.style} {each.colour}"><i></i>{text(each.label)}</span>' for each in drawn)
    data = "".join(f'<path class="{each.style} {each.colour}" d="{each.path}"/>' for each in drawn)
    return Markup(
        f"<figure><figcaption><b>{text(title)}</b><span>{legend}</span></figcaption>"
        f'<div class="plot"><svg role="img" aria-label="{text(about)}" width="100%" height="{_TOP + _TALL + 36}">'
        f"{_rules(scale)}{_dates(axis)}"
        f'<svg y="{_TOP}" width="100%" height="{_TALL}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f"{data}</svg></svg></div></figure>\n"
    )


def _rules(scale: Scale) -> str:
    lines = []
    for height, label in scale.ticks:
        y = f"{_TOP + _TALL * (1 - height):.1f}"
        lines.append(
            f'<line x2="100%" y1="{y}" y2="{y}"/><text class="y" x="-8" y="{y}" dy=".32em">{text(label)}</text>'
        )
    return "".join(lines)


def _dates(axis: Axis) -> str:
    """Draw ticks at round times. The date stands under the first tick of the axis and of each day."""
    span = axis.end - axis.start
    step = next((each for each in _TIME_STEPS if span / each <= _TICKS), int(span / _TICKS) // DAY * DAY)
    times = np.arange(-(-axis.start // step) * step, axis.end + 0.5, step)
    drawn, day = [], ""
    for number, each in enumerate(times):
        moment = datetime.fromtimestamp(float(each), UTC)
        x = f"{100 * (each - axis.start) / span:.2f}%"
        date = f"{moment:%d %b}".lstrip("0")
        new, day = date != day, date
        date += "" if number and step < _TIME_STEPS[-1] else f" {moment:%Y}"
        lines = [date] if step >= DAY else [f"{moment:%H:%M:%S}"[: 8 if step < MINUTE else 5], *[date] * new]
        kinds = ["x", *["start"] * (float(x[:-1]) < 3), *["end"] * (float(x[:-1]) > 97)]
        kinds += ["odd"] * (number % 2 and not (new and step < DAY))
        spans = "".join(f'<tspan x="{x}" dy="{1.25 * n}em">{line}</tspan>' for n, line in enumerate(lines))
        drawn.append(
            f'<line x1="{x}" x2="{x}" y1="{_TOP + _TALL}" y2="{_TOP + _TALL + 5}"/>'
            f'<text class="{" ".join(kinds)}" y="{_TOP + _TALL + 18}">{spans}</text>'
        )
    return "".join(drawn)


def _across(axis: Axis, times: Floats) -> list[int]:
    share = (np.clip(times, axis.start, axis.end) - axis.start) / (axis.end - axis.start)
    return [int(each) for each in np.rint(share * _WIDTH)]


def _down(heights: Floats) -> list[int]:
    return [int(each) for each in np.rint(np.nan_to_num(1 - np.clip(heights, 0, 1)) * _HEIGHT)]


def _runs(shown: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the bounds of each run of true values."""
    turns = np.flatnonzero(np.diff(np.concatenate([[False], shown, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(turns[::2], turns[1::2], strict=True)]


def _band(edges: Sequence[int], lower: Sequence[int], upper: Sequence[int], a: int, b: int) -> str:
    """Return a closed path: forth along *upper*, back along *lower*."""
    there = f"M{edges[a]} {upper[a]}{_along(edges, upper, range(a, b))}"
    back = f"V{lower[b - 1]}{_along(edges[:-1], lower, range(b - 1, a - 1, -1), ahead=0)}"
    return f"{there}{back}Z"


def _along(edges: Sequence[int], heights: Sequence[int], numbers: range, *, ahead: int = 1) -> str:
    """Return a path along the steps *numbers*, with neighbours of the same height merged."""
    moves, last = [], numbers[-1]
    for number in numbers:
        if number != last and heights[number] == heights[number + numbers.step]:
            continue
        moves.append(f"H{edges[number + ahead]}")
        if number != last:
            moves.append(f"V{heights[number + numbers.step]}")
    return "".join(moves)
