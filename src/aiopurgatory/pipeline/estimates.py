"""Estimates, by numpy on the driver: the time to completion and the popularity of keys, from sums that fit a page.

The time to completion is a log-normal distribution by maximum likelihood. Operations that expired are right-censored.
Kaplan and Meier's estimate checks the fit.

The popularity of keys is the exponent of Zipf's law, by maximum likelihood. The true ranks are unknown. They are taken
from the counts, so with few operations per key the exponent is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import chdtrc, gammaln, log_ndtr, ndtr, ndtri

from .tables import GROWTH

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

PERCENTILES: Final = (50, 90, 99)
#: The model does not fit if its cumulative shares differ from the data's by more than this.
TOLERATED_GAP: Final = 0.05
#: The largest exponent of popularity considered.
STEEPEST: Final = 6.0
#: The probability that the test rejects equally popular keys that are.
SIGNIFICANCE: Final = 0.01
# All values are the same, up to rounding.
_NO_DEVIATION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Binned:
    """Times by bucket of ``waited``, with their weights."""

    bins: Array
    weights: Array

    @property
    def means(self) -> Array:
        """Logarithms of the buckets' middles, in microseconds."""
        return (self.bins - 0.5) * log(GROWTH)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The distribution, and how it compares with the data (by Kaplan and Meier's estimate if they are censored)."""

    p50_ms: float
    sigma: float
    #: Percentiles beyond this are extrapolated.
    followed_ms: float
    #: The time of the largest gap, and the shares completed by then.
    gap_at_ms: float
    gap_seen: float
    gap_model: float
    fits: bool

    def percentile_ms(self, percent: float) -> float:
        return self.p50_ms * exp(self.sigma * float(ndtri(percent / 100)))

    def extrapolated(self, percent: float) -> bool:
        """Whether the percentile lies beyond every time seen. Less than 0.1 % beyond is rounding."""
        return self.percentile_ms(percent) > self.followed_ms * 1.001


def log_normal(completed: Binned, longer: Binned, weight_each: float = 1.0) -> LogNormal | None:
    """Return the maximum-likelihood log-normal distribution of times; None: nothing completed.

    Args: completed: exact times. longer: right-censored ones. weight_each: of a row; the sum of its squares / its sum.
    """
    weight = float(completed.weights.sum())
    if weight <= 0:
        return None
    mu, sigma = _estimated(completed, longer)
    edges = completed.bins * log(GROWTH)
    seen, model = 1 - _kaplan_meier(completed, longer), ndtr((edges - mu) / sigma)
    gaps = np.abs(seen - model)
    worst = int(gaps.argmax())
    rows = weight / weight_each  # Kish's effective sample size
    return LogNormal(
        p50_ms=exp(mu) / 1000,
        sigma=sigma,
        followed_ms=exp(float(np.concatenate([completed.means, longer.means]).max())) / 1000,
        gap_at_ms=exp(float(edges[worst])) / 1000,
        gap_seen=float(seen[worst]),
        gap_model=float(model[worst]),
        fits=bool(gaps[worst] <= max(TOLERATED_GAP, 1.63 / sqrt(rows))),  # so large a gap may be chance
    )


def _estimated(completed: Binned, longer: Binned) -> tuple[float, float]:
    """Return mu and sigma."""
    middle = float(np.average(completed.means, weights=completed.weights))
    spread = sqrt(float(np.average((completed.means - middle) ** 2, weights=completed.weights)))

    def unlikely(at: Array) -> float:
        """Return minus the logarithm of the likelihood."""
        mu, scale = middle + at[0], max(exp(min(at[1], 50.0)), _NO_DEVIATION)
        exact = completed.weights @ (-(((completed.means - mu) / scale) ** 2) / 2 - log(scale))
        above = longer.weights @ log_ndtr((mu - longer.means) / scale)
        return -float(exact + above) / float(completed.weights.sum())

    options = {"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2_000}
    found = minimize(unlikely, [0.0, log(max(spread, 0.01))], method="Nelder-Mead", options=options).x
    return middle + float(found[0]), max(exp(found[1]), _NO_DEVIATION)


def _kaplan_meier(completed: Binned, longer: Binned) -> Array:
    """Return the share not complete at the end of each bin of *completed*. A censored time counts as its bin's end."""
    done = completed.weights
    before = np.concatenate([[0.0], longer.weights.cumsum()])[longer.bins.searchsorted(completed.bins, side="left")]
    at_risk = done.sum() + longer.weights.sum() - before - np.concatenate([[0.0], done.cumsum()[:-1]])
    survival: Array = np.clip(1 - done / at_risk, 0, 1).cumprod()
    return survival


@dataclass(frozen=True, slots=True)
class Popularity:
    """How popular keys are by rank: the exponent, and how it compares with the data."""

    keys: int
    zipf: float
    largest_gap: float
    #: Share of operations under the hottest key.
    hottest: float

    @property
    def fits(self) -> bool:
        return self.largest_gap <= TOLERATED_GAP


def popularity(counts: Sequence[tuple[float, float]]) -> Popularity:
    """Estimate the exponent; 0 if the keys may be equally popular.

    Args: counts: pairs of a number of operations and how many keys have that number.
    """
    count, keys = np.array(sorted(counts, reverse=True), float).T
    number, total = round(keys.sum()), float(count @ keys)
    until, shares = keys.cumsum(), (count * keys).cumsum() / total
    mean = total / number
    dispersion = float(keys @ (count - mean) ** 2) / mean
    if number == 1 or chdtrc(number - 1, dispersion) >= SIGNIFICANCE:
        return Popularity(number, 0.0, 0.0, float(count[0]) / total)
    logs = float(count @ (gammaln(until + 1) - gammaln(until - keys + 1))) / total
    found: Any = minimize_scalar(
        lambda zipf: zipf * logs + log(_harmonic(number, zipf)), bounds=(0, STEEPEST), method="bounded"
    )
    zipf = float(found.x)
    expected = np.array([_harmonic(round(rank), zipf) for rank in until]) / _harmonic(number, zipf)
    gap = float(np.abs(shares - expected).max())
    return Popularity(number, zipf, gap, float(count[0]) / total)


def _harmonic(number: int, s: float) -> float:
    """Return the sum of rank ** -s over the ranks to *number*: exact for the first 1,000, then by Euler-Maclaurin."""
    exact = min(number, 1000)
    head = float((np.arange(1, exact + 1) ** -s).sum())
    if number == exact:
        return head
    a, b = exact + 0.5, number + 0.5  # each term as the area under the curve from half a rank before to half one after
    return head + (log(b / a) if abs(s - 1) < 1e-9 else (b ** (1 - s) - a ** (1 - s)) / (1 - s))
