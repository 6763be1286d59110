"""The load over time: curves with a value per step of the page's common time axis.

A rate is a count divided by the seconds covered by the journal. A minute without a row counts as 0 if the
purgatory has rows on that day. Other days are gaps, NaN; so is a percentile where nothing ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..minutes.units import OUTCOMES
from .reading import Frame

_Floats: TypeAlias = npt.NDArray[np.float64]
_Ints: TypeAlias = npt.NDArray[np.int64]

TIMES: Final = ("waited_p50_us", "waited_p99_us", "lateness_p99_us")
MINUTE: Final = 60
DAY: Final = 86_400
#: Kinds with a colour of their own.
KINDS: Final = 5
_MOST_STEPS: Final = 720
_BY_SECOND: Final = 600
_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
#: A first or last step covered by less than this share is pooled with its neighbour: both get one rate.
_LEAST_COVER: Final = 0.2


@dataclass(frozen=True)
class Axis:
    """Equal steps; the first and the last may reach beyond *start* and *end*. Seconds since 1970."""

    start: float
    end: float
    step: int

    @property
    def edges(self) -> _Floats:
        """The bounds of the steps."""
        first = int(self.start // self.step) * self.step
        return np.arange(first, first + self.step * (self.count + 1), self.step, dtype=np.float64)

    @property
    def count(self) -> int:
        return max(1, int(-(-self.end // self.step) - self.start // self.step))

    def number(self, times: npt.NDArray[Any]) -> _Ints:
        """The step of each of *times*."""
        return np.asarray(times // self.step - self.start // self.step, dtype=np.int64)

    def summed(self, times: npt.NDArray[Any], values: Any) -> _Floats:
        """The sum of *values* in each step."""
        return np.bincount(self.number(times), np.asarray(values, dtype=np.float64), self.count).astype(np.float64)

    def highest(self, times: npt.NDArray[Any], values: Any) -> _Floats:
        """The largest of *values* in each step, NaN where there is none."""
        found = np.full(self.count, np.nan)
        np.fmax.at(found, self.number(times), np.asarray(values, dtype=np.float64))
        return found

    def with_step(self, step: int) -> Axis:
        return Axis(self.start, self.end, step)


@dataclass(frozen=True)
class Curves:
    """Values per step of *axis*, by name."""

    axis: Axis
    values: Mapping[str, _Floats]


@dataclass(frozen=True)
class Load:
    """The load of one purgatory."""

    rates: Curves
    #: Operations waiting: the mean of each kind, and the peak of all.
    waiting: Curves
    peak: _Floats
    #: Whether the peak is exact. By the minute it is the sum of the kinds' peaks, perhaps of different seconds.
    peak_exact: bool
    times: Curves


def axis_of(minutes: Frame, seconds: Frame) -> Axis:
    """Return the page's time axis: steps of 1 or 10 seconds if *seconds* has rows, else of minutes or longer."""
    if len(seconds):
        start, end = float(epoch(seconds.second).min()), float(epoch(seconds.second).max() + 1)
        return Axis(start, end, 1 if end - start <= _BY_SECOND else 10)
    seen = epoch(minutes.minute)
    start, end = float(seen.min()), float(seen.max() + MINUTE)
    step = next((n for n in _MINUTES if (end - start) / (n * MINUTE) <= _MOST_STEPS), 0)
    days = -(-(end - start) // (DAY * _MOST_STEPS))
    return Axis(start, end, step * MINUTE or int(days) * DAY)


def load_of(axis: Axis, minutes: Frame, seconds: Frame) -> Load:
    """Return the load of one purgatory from its own rows."""
    minutes = minutes.assign(epoch=epoch(minutes.minute), covered_s=_covered(minutes))
    coarse = axis.with_step(max(axis.step, MINUTE))
    times = {name: coarse.highest(minutes.epoch.to_numpy(), minutes[name]) for name in TIMES}
    kinds = minutes.groupby("kind", observed=True).operations.sum().sort_values(ascending=False, kind="stable").index
    if len(seconds):
        seconds = seconds.assign(epoch=epoch(seconds.second))
        rates, waiting, peak = _by_second(axis, seconds, list(kinds))
    else:
        rates, waiting, peak = _by_minute(axis, minutes, list(kinds))
    exact = len(seconds) > 0 or len(kinds) == 1
    return Load(Curves(axis, rates), Curves(axis, waiting), peak, exact, Curves(coarse, times))


def lost_of(axis: Axis, lost: Frame) -> Curves:
    """Count rows dropped and quarantined per step of the axis. Rows without a known minute are left out."""
    coarse = axis.with_step(max(axis.step, MINUTE))
    timed = lost[lost.minute.notna()]
    timed = timed.assign(epoch=epoch(timed.minute))
    edges = coarse.edges
    timed = timed[(timed.epoch >= edges[0]) & (timed.epoch < edges[-1])]
    dropped = timed.what == "dropped"
    rows = {"dropped": timed[dropped], "quarantined": timed[~dropped]}
    return Curves(coarse, {name: coarse.summed(each.epoch.to_numpy(), each.rows) for name, each in rows.items()})


def _by_minute(
    axis: Axis, minutes: Frame, kinds: Sequence[str]
) -> tuple[dict[str, _Floats], dict[str, _Floats], _Floats]:
    at = minutes.epoch.to_numpy()
    once = minutes.groupby("epoch", as_index=False).agg({"covered_s": "max", "pending_peak": "sum"})
    cover = _cover(axis, once.epoch.to_numpy(), once.covered_s.to_numpy())
    rates = _rates(axis, at, minutes, cover)
    held = minutes.pending_mean.fillna(0) * minutes.covered_s
    waiting = _of_kinds(axis, at, minutes.kind, held, kinds, cover)
    peak = np.fmax(axis.highest(once.epoch.to_numpy(), once.pending_peak), 0)
    return rates, waiting, np.where(cover > 0, peak, np.nan)


def _by_second(
    axis: Axis, seconds: Frame, kinds: Sequence[str]
) -> tuple[dict[str, _Floats], dict[str, _Floats], _Floats]:
    at = seconds.epoch.to_numpy()
    # The first and the last second may not be whole. They are shown as they were counted.
    instants = np.arange(at.min(), at.max() + 1)
    seen = axis.summed(instants, np.ones(len(instants)))
    rates = _rates(axis, at, seconds, seen)
    waiting = _of_kinds(axis, at, seconds.kind, seconds.pending.fillna(0), kinds, seen)
    total = seconds.groupby("epoch").pending.sum()
    peak = np.fmax(axis.highest(total.index.to_numpy(), total), 0)
    return rates, waiting, np.where(seen > 0, peak, np.nan)


def _rates(axis: Axis, at: npt.NDArray[Any], rows: Frame, cover: _Floats) -> dict[str, _Floats]:
    counts = np.array([axis.summed(at, rows[name].fillna(0)) for name in OUTCOMES])
    seen = np.flatnonzero(cover > 0)
    cover = cover.copy()
    for edge, inner in ((seen[:1], seen[1:2]), (seen[-1:], seen[-2:-1])):
        if len(inner) and cover[edge] < _LEAST_COVER * axis.step:
            counts[:, edge] = counts[:, inner] = counts[:, edge] + counts[:, inner]
            cover[edge] = cover[inner] = cover[edge] + cover[inner]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.where(cover > 0, counts / cover, np.nan)
    return dict(zip(OUTCOMES, rates, strict=True))


def _of_kinds(
    axis: Axis, at: npt.NDArray[Any], kind: Frame, held: Frame, kinds: Sequence[str], cover: _Floats
) -> dict[str, _Floats]:
    """Return means by kind: the busiest *kinds*, and the others together."""
    alone = list(kinds[:KINDS]) if len(kinds) > KINDS + 1 else list(kinds)
    groups = [(name, kind == name) for name in alone]
    if len(alone) < len(kinds):
        groups.append((f"{len(kinds) - len(alone)} other kinds", ~kind.isin(alone)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            name: np.where(cover > 0, axis.summed(at[mask.to_numpy()], held[mask]) / cover, np.nan)
            for name, mask in groups
        }


def _cover(axis: Axis, minutes: _Ints, covered: _Floats) -> _Floats:
    """Return the seconds covered of each step: *covered* of the (distinct) *minutes*, and all of each silent minute."""
    edges, days = axis.edges, np.unique(minutes // DAY) * DAY
    begin, end = np.maximum(days, minutes.min()), np.minimum(days + DAY, minutes.max() + MINUTE)
    within = np.minimum(end[:, None], edges[1:]) - np.maximum(begin[:, None], edges[:-1])
    silent = np.clip(within, 0, None).sum(axis=0) - axis.summed(minutes, np.full(len(minutes), MINUTE))
    return np.asarray(axis.summed(minutes, covered) + np.clip(silent, 0, None), dtype=np.float64)


def _covered(minutes: Frame) -> Frame:
    """Return the seconds covered of each row's minute; the whole minute where the table does not say."""
    return minutes.covered_s.where(minutes.covered_s > 0, MINUTE)


def epoch(times: Frame) -> Any:
    """Whole seconds since 1970."""
    return pd.DatetimeIndex(times).as_unit("s").asi8
