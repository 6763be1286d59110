"""Estimates of arrivals: rates by hour of the day, and whether arrivals are a Poisson process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scipy.stats import chi2

from .estimate import CONFIDENCE, SIGNIFICANCE, Interval, effective

HOUR: Final = 3600
#: Difference from 1 of the index of dispersion that is too small to matter.
TOLERATED_INDEX: Final = 0.1


@dataclass(frozen=True, slots=True)
class Hour:
    """Arrivals in the whole seconds of one hour; a row's weight is the number of operations that it stands for."""

    #: Hours since the epoch.
    number: int
    weight: float
    #: The sum of the squared weights of rows, and of the squared weights of seconds.
    squares: float
    squares_of_seconds: float


@dataclass(frozen=True, slots=True)
class Poisson:
    """Fisher's index of dispersion: the variance of the arrivals per second, over that of a Poisson process."""

    index: float | None
    p: float | None

    @property
    def fits(self) -> bool | None:
        if self.index is None or self.p is None:
            return None
        return self.p >= SIGNIFICANCE or abs(self.index - 1) <= TOLERATED_INDEX


@dataclass(frozen=True, slots=True)
class Rate:
    """Arrivals per second in one hour of the day; the interval is None where it is not known."""

    per_second: float
    interval: Interval | None


def rates(hours: Iterable[Hour], first: int, last: int, dispersion: float = 1.0) -> dict[int, Rate]:
    """Arrivals per second by hour of the day, of the hours seen.

    The intervals are exact for a Poisson process (Garwood's). They hold for the time seen: another day may differ.

    Args:
        hours: the hours with arrivals.
        first: the first second of the journal; only later ones are whole.
        last: its last second; only earlier ones are whole.
        dispersion: the variance of arrivals over that of a Poisson process (default: 1). Below 1 it counts as 1.
    """
    weights, squares = dict.fromkeys(range(24), 0.0), dict.fromkeys(range(24), 0.0)
    seconds = dict.fromkeys(range(24), 0)
    for number in range(first // HOUR, last // HOUR + 1):
        seconds[number % 24] += _seconds(number, first, last)
    for hour in hours:
        weights[hour.number % 24] += hour.weight
        squares[hour.number % 24] += hour.squares
    total = sum(weights.values())
    typical = sum(squares.values()) / total if total else 1.0
    found = {}
    for hour_of_day in (each for each in range(24) if seconds[each]):
        weight = weights[hour_of_day]
        count = effective(weight, squares[hour_of_day]) / max(1.0, dispersion) if weight else 0.0
        each = (weight / count if count else typical * max(1.0, dispersion)) / seconds[hour_of_day]
        low, high = _garwood(count)
        found[hour_of_day] = Rate(weight / seconds[hour_of_day], (low * each, high * each))
    return found


def _garwood(count: float) -> Interval:
    """Return the interval of a Poisson process's mean, given *count* arrivals."""
    tail = (1 - CONFIDENCE) / 2
    low = float(chi2.ppf(tail, 2 * count)) / 2 if count else 0.0
    return low, float(chi2.isf(tail, 2 * count + 2)) / 2


def poisson(hours: Iterable[Hour], first: int, last: int) -> Poisson:
    """Test whether arrivals vary over the seconds of an hour as those of a Poisson process do.

    Rows with weights vary more, by the ratio of the mean square of the weights to their mean.
    """
    dispersion, degrees = 0.0, 0
    for hour in hours:
        seconds = _seconds(hour.number, first, last)
        mean = hour.weight / seconds
        dispersion += (hour.squares_of_seconds - seconds * mean**2) / (mean * hour.squares / hour.weight)
        degrees += seconds - 1
    if degrees < 1:
        return Poisson(None, None)
    p = 2 * min(chi2.sf(dispersion, degrees), chi2.cdf(dispersion, degrees))
    return Poisson(float(dispersion / degrees), float(min(p, 1.0)))


def _seconds(number: int, first: int, last: int) -> int:
    """Whole seconds of hour *number*: those after *first* and before *last*."""
    return max(0, min((number + 1) * HOUR, last) - max(number * HOUR, first + 1))
