"""Figures of the page: numbers in words, and plots, whose geometry the template draws as inline SVG.

Plots stretch with the page while their text keeps its size. So a path is in units of an inner SVG, which is stretched
to the width. All other places are in percent of the plot, from its left or from its top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_UNITS: Final = (("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("µs", 1.0))
#: Round steps of time, in seconds.
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)
_DURATIONS: Final = (*(10.0**n for n in range(8)), 60e6, 600e6, 3600e6, 36_000e6, 864_000e6, 8_640_000e6)
_MOST_STEPS: Final = 720
_TICKS: Final = 7
_WIDTH, _HEIGHT = 10_000, 1_000  # of the inner picture: its view box in page.html


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


def shown(value: float | None, name: str) -> str:
    """Format the *value* of a column or limit. The end of its *name* tells the unit."""
    if value is None:
        return "-"
    if name.endswith(("_us", "_ms")):
        return duration(value if name.endswith("_us") else value * 1000)
    return share(value) if name.endswith("_share") else count(value)


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

    def dates(self) -> Iterator[tuple[float, list[str]]]:
        """Yield the places of round times, and their labels. The first of each day also has the date."""
        span, day = self.end - self.start, ""
        step = next((each for each in _STEPS if span / each <= _TICKS), int(span / _TICKS) // DAY * DAY)
        for each in np.arange(-(-self.start // step) * step, self.end + 0.5, step):
            before, (day, time) = day, f"{datetime.fromtimestamp(float(each), UTC):%Y-%m-%d %H:%M:%S}".split()
            lines = [*([] if step >= DAY else [time.removesuffix(":00")]), *([] if day == before else [day])]
            yield 100 * (each - self.start) / span, lines


def axis_of(first: int | None, last: int | None, *, unit: int) -> Axis:
    """Return the time axis from the *first* minute or second to the *last*. The *unit* is its shortest step."""
    if first is None or last is None:
        return Axis(0, MINUTE, MINUTE)
    end = last + unit
    step = next((each for each in _STEPS if each >= unit and (end - first) / each <= _MOST_STEPS), _STEPS[-1])
    return Axis(first, end, step)


@dataclass(frozen=True)
class Plot:
    """What the template draws beside the dates of the axis."""

    title: str
    #: The label, CSS classes and path of each series.
    curves: Sequence[tuple[str, str, str]]
    #: The place and label of each horizontal line.
    rules: Sequence[tuple[float, str]]


def plot(title: str, axis: Axis, ticks: Ticks, drawn: Sequence[tuple[str, str, Floats]]) -> Plot:
    """Return a plot.

    Args:
        drawn: the label, CSS classes and values by step of each series. Later ones are painted over earlier ones.
            The classes are a colour, and area, line, or dashed.
    """
    low, high = ticks[0][0], ticks[-1][0]
    curves = [
        (label, classes, _path(axis, (high - np.clip(values, low, high)) / (high - low), is_area="area" in classes))
        for label, classes, values in drawn
    ]
    return Plot(title, curves, [(100 * (high - value) / (high - low), label) for value, label in ticks])


def _path(axis: Axis, depths: Floats, *, is_area: bool) -> str:
    """Return *depths* below the top as steps, broken where one is NaN. Neighbours of the same height are one step."""
    share_of_axis = (np.clip(axis.edges, axis.start, axis.end) - axis.start) / (axis.end - axis.start)
    xs = np.rint(_WIDTH * share_of_axis).astype(int).tolist()
    ys = np.rint(_HEIGHT * np.nan_to_num(depths)).astype(int).tolist()
    turns = np.flatnonzero(np.diff(~np.isnan(depths), prepend=False, append=False)).tolist()
    paths = []
    for a, b in zip(turns[::2], turns[1::2], strict=True):
        steps = "".join(f"H{xs[n]}V{ys[n]}" for n in range(a + 1, b) if ys[n] != ys[n - 1])
        paths.append(f"M{xs[a]} {ys[a]}{steps}H{xs[b]}{f'V{_HEIGHT}H{xs[a]}Z' if is_area else ''}")
    return "".join(paths)


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
