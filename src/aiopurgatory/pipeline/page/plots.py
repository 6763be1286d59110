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
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)
_DURATIONS: Final = (*(10.0**n for n in range(7)), 10e6, 60e6, 600e6, 3600e6, 36_000e6, 864_000e6, 8_640_000e6)


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
    def number(self) -> str:
        """The number of the step of a ``minute``, in SQL."""
        return f"unix_seconds(minute) div {self.step} - {self.first}"

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
    below = [each for each in _DURATIONS if each <= max(lowest, 1.0)]
    inside = [each for each in _DURATIONS if below[-1] <= each < highest]
    last = next((each for each in _DURATIONS if each >= highest and each > below[-1]), highest * 2)
    bottom, span = np.log(below[-1]), np.log(last / below[-1])

    def height(value: Any) -> Any:
        return (np.log(np.maximum(value, below[-1])) - bottom) / span

    return Scale(height, [(float(height(each)), duration(each)) for each in [*inside, last]])


def stacked(axis: Axis, scale: Scale, values: Sequence[Floats]) -> list[str]:
    """Return the paths of *values* as steps, each on top of the last. Nothing is drawn where a value is 0."""
    paths, base = [], np.zeros(axis.count)
    for each in values:
        upper = base + np.nan_to_num(each)
        runs = _runs(np.nan_to_num(each) > 0)
        paths.append("".join(_line(axis, scale, upper, *run) + _back(axis, scale, base, *run) for run in runs))
        base = upper
    return paths


def steps(axis: Axis, scale: Scale, values: Floats) -> str:
    """The path of *values* as a line of steps, broken where one is NaN."""
    return "".join(_line(axis, scale, values, *run) for run in _runs(~np.isnan(values)))


def _line(axis: Axis, scale: Scale, values: Floats, a: int, b: int) -> str:
    """The path along the steps from *a* to before *b*. Neighbours of the same height are one step."""
    xs, ys = _across(axis, axis.edges), _down(scale.height(values[a:b]))
    turns = [n for n in range(1, b - a) if ys[n] != ys[n - 1]]
    return f"M{xs[a]} {ys[0]}{''.join(f'H{xs[a + n]}V{ys[n]}' for n in turns)}H{xs[b]}"


def _back(axis: Axis, scale: Scale, values: Floats, a: int, b: int) -> str:
    """The rest of a closed path: back along *values*."""
    xs, ys = _across(axis, axis.edges), _down(scale.height(values[a:b]))
    turns = [n for n in range(b - a - 1, 0, -1) if ys[n] != ys[n - 1]]
    return f"V{ys[-1]}{''.join(f'H{xs[a + n]}V{ys[n - 1]}' for n in turns)}H{xs[a]}Z"


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
    drawn, day = [], ""
    for each in np.arange(-(-axis.start // step) * step, axis.end + 0.5, step):
        moment = datetime.fromtimestamp(float(each), UTC)
        x = 100 * (each - axis.start) / span
        new, day = f"{moment:%Y-%m-%d}" != day, f"{moment:%Y-%m-%d}"
        time = [] if step >= DAY else [f"{moment:%H:%M:%S}"[: 8 if step < MINUTE else 5]]
        lines = [*time, *([day] if new else [])]
        kind = "x start" if x < 3 else "x end" if x > 97 else "x"
        spans = "".join(f'<tspan x="{x:.2f}%" dy="{1.25 * n}em">{line}</tspan>' for n, line in enumerate(lines))
        drawn.append(f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{_TOP + _TALL}" y2="{_TOP + _TALL + 5}"/>')
        drawn.append(f'<text class="{kind}" y="{_TOP + _TALL + 18}">{spans}</text>')
    return "".join(drawn)


def _across(axis: Axis, times: Floats) -> list[int]:
    share = (np.clip(times, axis.start, axis.end) - axis.start) / (axis.end - axis.start)
    return [int(each) for each in np.rint(share * _WIDTH)]


def _down(heights: Floats) -> list[int]:
    return [int(each) for each in np.rint(np.nan_to_num(1 - np.clip(heights, 0, 1)) * _HEIGHT)]


def _runs(shown: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the bounds of each run of true values."""
    turns = np.flatnonzero(np.diff(shown, prepend=False, append=False))
    return [(int(a), int(b)) for a, b in zip(turns[::2], turns[1::2], strict=True)]
