"""Estimates of the popularity of keys: the exponent of Zipf's law.

The true ranks are unknown. They are taken from the counts, which lack keys without an operation. Both bias the
maximum-likelihood estimate. Indirect inference removes the bias: it finds the exponent that explains the biased
estimate.

Source: Gourieroux, Monfort, Renault, Indirect Inference, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, ndtri
from scipy.stats import chi2, ncx2

from .estimate import CONFIDENCE, SIGNIFICANCE, TOLERATED_GAP, Array, Interval

#: The largest exponent considered.
STEEPEST: Final = 6.0
# Ranks that are drawn one by one, and the number of groups for the others.
_SINGLE, _GROUPS = 1_000, 4_000
_GOLDEN: Final = (sqrt(5) - 1) / 2
# Counts of a smaller mean are drawn exactly, larger ones by Cornish and Fisher's expansion.
_SMALL: Final = 12


@dataclass(frozen=True, slots=True)
class Popularity:
    """How popular keys are by rank: the exponent, and how it compares with the data."""

    #: Keys seen, and an estimate of how many exist.
    keys: int
    exist: int
    zipf: float
    #: None: the law does not fit, or the exponent is at a bound.
    interval: Interval | None
    largest_gap: float
    #: Share of operations under the hottest key.
    hottest: float
    #: Operations per key.
    per_key: float

    @property
    def fits(self) -> bool:
        return self.largest_gap <= TOLERATED_GAP


def popularity(counts: Sequence[tuple[float, float]], spread: float = 1.0) -> Popularity:
    """Estimate the exponent; 0 if the keys may be equally popular.

    Args:
        counts: pairs of a number of operations and how many keys have that number.
        spread: the mean square of the rows' weights over their mean (default: 1).
    """
    count, keys = np.array(sorted(counts, reverse=True), float).T
    number, total = round(keys.sum()), float(count @ keys)
    mean = total / number
    dispersion = float((keys @ (count - mean) ** 2) / mean / spread)
    exist, zipf, interval = number, 0.0, None
    if number == 1:
        pass
    elif chi2.sf(dispersion, number - 1) >= SIGNIFICANCE:
        interval = _flattest(dispersion, number, total / spread)
    else:
        exist, zipf, interval = _corrected(count / spread, keys)
    until, shares = keys.cumsum(), (count * keys).cumsum() / total
    gap = float(np.abs(shares - _expected_shares(zipf, exist, total / spread, until)).max())
    if gap > TOLERATED_GAP:
        interval = None
    return Popularity(number, exist, zipf, interval, gap, float(count[0]) / total, mean)


def _flattest(dispersion: float, number: int, total: float) -> Interval:
    """Return the interval from 0 to the largest exponent with counts that vary as little, at this confidence."""

    def excess(zipf: float) -> float:
        ranks, sizes = _ranks(number)
        shares = _shares(ranks, sizes, zipf)
        noncentral = total * (number * float(sizes @ shares**2) - 1)
        return float(ncx2.cdf(dispersion, number - 1, max(noncentral, 0.0))) - (1 - CONFIDENCE) / 2

    if excess(0.0) <= 0:
        return 0.0, 0.0
    steepest: Any = brentq(excess, 0.0, STEEPEST, xtol=1e-6)
    return 0.0, float(steepest)


def _corrected(count: Array, keys: Array) -> tuple[int, float, Interval | None]:
    """Return how many keys exist, the exponent without bias, and its interval (None: it is at a bound)."""
    naive, number, total = _exponent(count, keys), round(keys.sum()), float(count @ keys)

    def excess(zipf: float) -> float:
        return _expected(zipf, _existing(number, total, zipf), total) - naive

    low, high = max(naive - 0.1, 0.0), min(naive + 0.1, STEEPEST)
    while low > 0 and excess(low) > 0:
        low = max(2 * low - high, 0.0)
    while high < STEEPEST and excess(high) < 0:
        high = min(2 * high - low, STEEPEST)
    if excess(low) >= 0 or excess(high) <= 0:
        return number, low, None
    found: Any = brentq(excess, low, high, xtol=1e-5)
    zipf = float(found)
    exist = _existing(number, total, zipf)
    ranks, sizes = _ranks(exist)
    shares, logs = _shares(ranks, sizes, zipf) * sizes, np.log(ranks)
    deviation = 1 / sqrt(total * float(shares @ logs**2 - (shares @ logs) ** 2))
    # The biased estimate moves by this much when the exponent does.
    low, high = max(zipf - max(0.05, 3 * deviation), 0.0), zipf + max(0.05, 3 * deviation)
    slope = (excess(high) - excess(low)) / (high - low)
    margin = float(ndtri((1 + CONFIDENCE) / 2)) * deviation / min(max(slope, 0.2), 1.0)
    return exist, zipf, (max(zipf - margin, 0.0), zipf + margin)


def _exponent(count: Array, keys: Array) -> float:
    """Return the maximum-likelihood exponent by the ranks of *count*, in descending order."""
    until = keys.cumsum()
    number, total = round(until[-1]), float(count @ keys)
    logs = float(count @ (gammaln(until + 1) - gammaln(until - keys + 1))) / total
    found: Any = minimize_scalar(
        lambda zipf: zipf * logs + log(_harmonic(number, zipf)),
        bounds=(0, STEEPEST),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(found.x)


def _expected(zipf: float, number: int, total: float) -> float:
    """Return the mean of `_exponent` for *number* keys with *total* operations under *zipf*."""
    found = [_exponent(count, keys) for count, keys in _typical_counts(zipf, number, total)]
    return sum(found) / len(found)


def _expected_shares(zipf: float, number: int, total: float, ranks: Array) -> Array:
    """Return the mean shares of operations under keys up to *ranks*, by the ranks of their counts."""
    curves = []
    for count, keys in _typical_counts(zipf, number, total):
        upto = (count * keys).cumsum()
        curves.append(np.interp(ranks, np.concatenate([[0], keys.cumsum()]), np.concatenate([[0], upto / upto[-1]])))
    mean: Array = np.mean(curves, axis=0)
    return mean


def _typical_counts(zipf: float, number: int, total: float) -> list[tuple[Array, Array]]:
    """Return two typical outcomes: descending counts of operations, and how many keys have each.

    The counts are spread evenly over their distributions; the second outcome mirrors the first. Both are the same in
    every run.
    """
    ranks, sizes = _ranks(number)
    means = total * _shares(ranks, sizes, zipf)
    even = np.clip((np.arange(len(ranks)) * _GOLDEN + 0.5) % 1, 1e-9, 1 - 1e-9)
    found = []
    for points in (even, 1 - even):
        counts = _poisson_quantiles(means, points)
        falling, at = np.unique(-counts[counts > 0], return_inverse=True)
        found.append((-falling, np.bincount(at, sizes[counts > 0])))
    return found


def _poisson_quantiles(means: Array, points: Array) -> Array:
    z = ndtri(points)
    counts: Array = np.maximum(np.round(means + np.sqrt(means) * z + (z * z - 1) / 6), 0)
    small = np.flatnonzero(means < _SMALL)
    term = np.exp(-means[small])
    upto, exact = term.copy(), np.zeros(len(small))
    for number in range(1, 40):
        exact += upto < points[small]
        term *= means[small] / number
        upto += term
    counts[small] = exact
    return counts


def _existing(seen: int, total: float, zipf: float) -> int:
    """Return the number of keys that exist, if *seen* of them are expected to have an operation."""

    def expected(number: int) -> float:
        ranks, sizes = _ranks(number)
        return float(-np.expm1(-total * _shares(ranks, sizes, zipf)) @ sizes)

    low = high = seen
    while expected(high) < seen - 0.5:
        low, high = high, 2 * high
        if high > 64 * seen:
            return high
    while high - low > max(1, seen // 1_000):
        middle = (low + high) // 2
        low, high = (middle, high) if expected(middle) < seen - 0.5 else (low, middle)
    return high


def _ranks(number: int) -> tuple[Array, Array]:
    """Return ranks, and how many keys each stands for: the first ranks for one, each of the others for a group."""
    width = max(1, (number - _SINGLE) // _GROUPS + 1)
    starts = np.arange(min(number, _SINGLE) + 1, number + 1, width)
    sizes = np.minimum(width, number + 1 - starts)
    first = np.arange(1.0, min(number, _SINGLE) + 1)
    return np.concatenate([first, starts + (sizes - 1) / 2]), np.concatenate([np.ones(len(first)), sizes])


def _shares(ranks: Array, sizes: Array, zipf: float) -> Array:
    """Return the share of each single key."""
    shares: Array = ranks**-zipf
    shares /= shares @ sizes
    return shares


def _harmonic(number: int, s: float) -> float:
    """Return the sum of rank ** -s over the ranks to *number*: exact for the first 1,000, then by Euler-Maclaurin."""
    exact = min(number, 1000)
    head = float((np.arange(1, exact + 1) ** -s).sum())
    if number == exact:
        return head
    a, b = exact + 0.5, number + 0.5  # each term as the area under the curve from half a rank before to half one after
    return head + (log(b / a) if abs(s - 1) < 1e-9 else (b ** (1 - s) - a ** (1 - s)) / (1 - s))
