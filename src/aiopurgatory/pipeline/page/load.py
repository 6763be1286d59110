"""The load over time: curves with a value per step of the page's common time axis.

A rate is a count divided by the seconds covered by the journal. A minute without a row counts as 0 if the
purgatory has rows on that day. Other days are gaps, NaN; so is a percentile where nothing ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..minutes.units import OUTCOMES
from .reading import MINUTE, TIMES, Floats, Ints, Pool, epoch

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
    def edges(self) -> Floats:
        """The bounds of the steps."""
        first = int(self.start // self.step) * self.step
        return np.arange(first, first + self.step * (self.count + 1), self.step, dtype=np.float64)

    @property
    def count(self) -> int:
        return max(1, int(-(-self.end // self.step) - self.start // self.step))

    def number(self, times: npt.NDArray[Any]) -> Ints:
        """The step of each of *times*."""
        return np.asarray(times // self.step - self.start // self.step, dtype=np.int64)

    def summed(self, times: npt.NDArray[Any], values: Any) -> Floats:
        """The sum of *values* in each step."""
        return np.bincount(self.number(times), np.asarray(values, dtype=np.float64), self.count).astype(np.float64)

    def highest(self, times: npt.NDArray[Any], values: Any) -> Floats:
        """The largest of *values* in each step, NaN where there is none."""
        found = np.full(self.count, np.nan)
        np.fmax.at(found, self.number(times), np.asarray(values, dtype=np.float64))
        return found


@dataclass(frozen=True)
class Curves:
    """Values per step of *axis*, by name."""

    axis: Axis
    values: Mapping[str, Floats]


@dataclass(frozen=True)
class Load:
    """The load of one purgatory."""

    rates: Curves
    #: Operations waiting: the mean of each kind, and the peak of all.
    waiting: Curves
    peak: Floats
    #: Whether the peak is exact. By the minute it is the sum of the kinds' peaks, perhaps of different seconds.
    peak_exact: bool
    times: Curves


def axis_of(minutes: Mapping[str, Pool], seconds: Mapping[str, Pool]) -> Axis:
    """Return the page's time axis: steps of 1 or 10 seconds if there are *seconds*, else of minutes or longer."""
    pools = (seconds or minutes).values()
    start, last = (float(bound) for bound in (min(each.at[0] for each in pools), max(each.at[-1] for each in pools)))
    if seconds:
        return Axis(start, last + 1, 1 if last + 1 - start <= _BY_SECOND else 10)
    end = last + MINUTE
    step = next((n for n in _MINUTES if (end - start) / (n * MINUTE) <= _MOST_STEPS), 0)
    days = -(-(end - start) // (DAY * _MOST_STEPS))
    return Axis(start, end, step * MINUTE or int(days) * DAY)


def load_of(axis: Axis, minutes: Pool, seconds: Pool | None) -> Load:
    """Return the load of one purgatory."""
    coarse = replace(axis, step=max(axis.step, MINUTE))
    times = {name: coarse.highest(minutes.at, minutes.values[name]) for name in TIMES}
    if seconds:
        # The first and the last second may not be whole. They are shown as they were counted.
        instants = np.arange(seconds.at[0], seconds.at[-1] + 1)
        rows, peaks, cover = seconds, seconds.values["held"], axis.summed(instants, np.ones(len(instants)))
    else:
        rows, peaks, cover = minutes, minutes.values["pending_peak"], _cover(axis, minutes)
    kinds = sorted(minutes.kinds, key=lambda kind: -minutes.kinds[kind].total("operations"))
    waiting = _of_kinds(axis, rows, kinds, cover)
    peak = np.where(cover > 0, np.fmax(axis.highest(rows.at, peaks), 0), np.nan)
    exact = seconds is not None or len(kinds) == 1
    return Load(Curves(axis, _rates(axis, rows, cover)), Curves(axis, waiting), peak, exact, Curves(coarse, times))


def lost_of(axis: Axis, lost: pa.Table) -> Curves:
    """Count rows dropped and quarantined per step of the axis. Rows without a known minute are left out."""
    coarse = replace(axis, step=max(axis.step, MINUTE))
    timed = lost.filter(lost["minute"].is_valid())
    at, rows, dropped = epoch(timed["minute"]), timed["rows"].to_numpy(), np.array(timed["what"]) == "dropped"
    inside = (at >= coarse.edges[0]) & (at < coarse.edges[-1])
    masks = {"dropped": inside & dropped, "quarantined": inside & ~dropped}
    return Curves(coarse, {name: coarse.summed(at[mask], rows[mask]) for name, mask in masks.items()})


def _rates(axis: Axis, rows: Pool, cover: Floats) -> dict[str, Floats]:
    counts = np.array([axis.summed(rows.at, rows.values[name]) for name in OUTCOMES])
    seen = np.flatnonzero(cover > 0)
    cover = cover.copy()
    for edge, inner in ((seen[:1], seen[1:2]), (seen[-1:], seen[-2:-1])):
        if len(inner) and cover[edge] < _LEAST_COVER * axis.step:
            counts[:, edge] = counts[:, inner] = counts[:, edge] + counts[:, inner]
            cover[edge] = cover[inner] = cover[edge] + cover[inner]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.where(cover > 0, counts / cover, np.nan)
    return dict(zip(OUTCOMES, rates, strict=True))


def _of_kinds(axis: Axis, rows: Pool, kinds: Sequence[str], cover: Floats) -> dict[str, Floats]:
    """Return means by kind: the busiest *kinds*, and the others together."""
    alone = kinds[:KINDS] if len(kinds) > KINDS + 1 else kinds
    groups = {name: [name] for name in alone}
    if len(alone) < len(kinds):
        groups[f"{len(kinds) - len(alone)} other kinds"] = list(kinds[len(alone) :])
    means = {}
    for name, own in groups.items():
        held = [rows.kinds[kind] for kind in own if kind in rows.kinds]
        with np.errstate(invalid="ignore", divide="ignore"):
            means[name] = np.where(
                cover > 0, sum(axis.summed(each.at, each.values["held"]) for each in held) / cover, np.nan
            )
    return means


def _cover(axis: Axis, rows: Pool) -> Floats:
    """Return the seconds covered of each step: those of minutes with rows, and all of each silent minute."""
    edges, days, minutes = axis.edges, np.unique(rows.at // DAY) * DAY, rows.at
    begin, end = np.maximum(days, minutes[0]), np.minimum(days + DAY, minutes[-1] + MINUTE)
    within = np.minimum(end[:, None], edges[1:]) - np.maximum(begin[:, None], edges[:-1])
    silent = np.clip(within, 0, None).sum(axis=0) - axis.summed(minutes, np.full(len(minutes), MINUTE))
    covered = axis.summed(minutes, rows.values["covered_s"])
    return np.asarray(covered + np.clip(silent, 0, None), dtype=np.float64)
