"""The statistics of fit: from sums and histograms to parameters, and to how well they describe what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, log_ndtr, ndtr, ndtri
from scipy.stats import chi2

Array = np.ndarray[Any, np.dtype[Any]]

#: Bins of the histograms of times, per factor of e.
BINS: Final = 64
#: A test that says "not so" to what is so is wrong this often. With millions of rows it says so to everything: hence
#: there must be a difference that matters, too.
SIGNIFICANCE: Final = 0.01
#: Of the shares completed by any time, or of operations on the most popular keys: a larger gap is no fit.
TOLERATED_GAP: Final = 0.05
#: Of the variance per second to the mean: so far from 1 is not Poisson.
TOLERATED_INDEX: Final = 0.1
PERCENTILES: Final = (50, 90, 99)
HOUR: Final = 3600
# Of an estimate that is repeated until it changes no more; a dozen or two are common.
_ROUNDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Hour:
    """Arrivals in one hour, in its whole seconds; weights are how many operations a row stands for."""

    number: int  # since the epoch
    weight: float
    #: The sum of the squared weights, and of the squared weights per second.
    squares: float
    squares_of_seconds: float


@dataclass(frozen=True, slots=True)
class Poisson:
    """Fisher's index of dispersion: the variance of the arrivals per second to what it is in a Poisson process."""

    index: float | None
    p: float | None

    @property
    def fits(self) -> bool | None:
        if self.index is None or self.p is None:
            return None
        return self.p >= SIGNIFICANCE or abs(self.index - 1) <= TOLERATED_INDEX


def rates(hours: Iterable[Hour], first: int, last: int) -> dict[int, float]:
    """Arrivals per second by hour of the day, of the hours seen: the whole seconds are between *first* and *last*."""
    weights, seconds = dict.fromkeys(range(24), 0.0), dict.fromkeys(range(24), 0)
    for number in range(first // HOUR, last // HOUR + 1):
        seconds[number % 24] += _seconds(number, first, last)
    for hour in hours:
        weights[hour.number % 24] += hour.weight
    return {hour: weights[hour] / seconds[hour] for hour in range(24) if seconds[hour]}


def poisson(hours: Iterable[Hour], first: int, last: int) -> Poisson:
    """Do arrivals scatter over the seconds of an hour as those of a Poisson process do?

    Rows that stand for several operations scatter more, by the mean square of their weights to the mean.
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
    """Whole seconds of hour *number* between the two that may be cut off."""
    return max(0, min((number + 1) * HOUR, last) - max(number * HOUR, first + 1))


@dataclass(frozen=True, slots=True)
class Times:
    """Times to completion as far as they are known: sums of logarithms of microseconds, and what was cut off when."""

    #: Of those that completed: weight, sum of logarithms, sum of their squares.
    weight: float
    total: float
    squares: float
    #: (logarithm, weight) pairs: it takes longer than that; it took less.
    longer: Array
    shorter: Array
    #: Weights of those that completed, by bin.
    histogram: Mapping[int, float]
    #: What the weights are worth in rows.
    effective: float


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The distribution, and how it compares with what was seen (by Turnbull where it is known only in part)."""

    p50_ms: float
    sigma: float
    largest_gap: float
    #: The logarithm of the us at which that is, and the shares completed by then.
    gap_at: float
    gap_seen: float
    gap_model: float
    #: As large may the gap be by chance.
    noise: float
    #: By percentile; None: so many did not complete in time.
    seen_ms: dict[int, float | None]

    @property
    def fits(self) -> bool:
        return self.largest_gap <= max(TOLERATED_GAP, self.noise)

    def percentile_ms(self, percent: float) -> float:
        return self.p50_ms * exp(self.sigma * float(ndtri(percent / 100)))


def log_normal(times: Times) -> LogNormal | None:
    """The log-normal distribution of the greatest likelihood; None: nothing completed, so there is none."""
    if times.weight <= 0:
        return None
    mu, sigma = _maximise(times)
    survival, edges = _kaplan_meier(times)
    model: Array = ndtr((edges - mu) / sigma)
    gaps = np.abs((1 - survival) - model)
    worst = int(gaps.argmax())
    seen: dict[int, float | None] = {}
    for percent in PERCENTILES:
        reached = np.flatnonzero(1 - survival >= percent / 100)
        seen[percent] = exp(edges[reached[0]]) / 1000 if len(reached) else None
    noise = 1.63 / sqrt(times.effective)
    gap_seen, gap_model = float(1 - survival[worst]), float(model[worst])
    return LogNormal(exp(mu) / 1000, sigma, float(gaps[worst]), float(edges[worst]), gap_seen, gap_model, noise, seen)


def _maximise(times: Times) -> tuple[float, float]:
    """Mean and deviation of the logarithms.

    In 1/sigma and mu/sigma the likelihood is concave, so that there is one maximum and any way up leads there.
    Source: Olsen, Note on the Uniqueness of the Maximum Likelihood Estimator for the Tobit Model, 1978.
    """
    weight, middle = times.weight, times.total / times.weight
    spread = max(sqrt(max(times.squares / weight - middle**2, 0.0)), 1e-3)
    squares = (
        times.squares - 2 * middle * times.total + weight * middle**2
    ) / spread**2  # centred, as all that follows
    longer, shorter = ((pairs[:, 0] - middle) / spread for pairs in (times.longer, times.shorter))
    over, under = times.longer[:, 1], times.shorter[:, 1]
    everything = weight + over.sum() + under.sum()

    def loss(at: Array) -> tuple[float, Array]:
        gamma, theta = at
        z, y = theta * longer - gamma, theta * shorter - gamma
        tail, head = log_ndtr(-z), log_ndtr(y)
        # weight * gamma**2 and not its mix with the sum: that is 0, centred
        value = weight * log(theta) - (theta**2 * squares + weight * gamma**2) / 2 + over @ tail + under @ head
        h, g = over * _hazard(z, tail), under * _hazard(y, head)
        slopes = [h.sum() - g.sum() - weight * gamma, weight / theta - theta * squares - h @ longer + g @ shorter]
        return -value / everything, -np.array(slopes) / everything

    found = minimize(loss, [0.0, 1.0], jac=True, method="L-BFGS-B", bounds=[(None, None), (1e-6, 1e6)], tol=1e-12)
    gamma, theta = found.x
    return float(middle + spread * gamma / theta), float(spread / theta)


def _hazard(z: Array, log_share: Array) -> Array:
    return np.exp(-z * z / 2 - log(sqrt(2 * np.pi)) - log_share)


def _kaplan_meier(times: Times) -> tuple[Array, Array]:
    """The share not complete at the upper edges of the bins in which some completed, and those edges.

    Kaplan and Meier's, where what is known to be shorter than a time is spread over the bins until then as all is
    found to be spread over them; again and again, until that changes nothing. If none of them is until then, it counts
    in the first.
    Source: Turnbull, Nonparametric Estimation of a Survivorship Function with Doubly Censored Data, 1974. Differs: his
    times may lie between the bins, too; then a single last try that is a bit later than all others pulls down the tail.
    """
    bins = np.array(sorted(times.histogram))
    done = np.array([times.histogram[each] for each in bins.tolist()])
    cut = times.longer[np.argsort(times.longer[:, 0])]
    # Cut off in a bin counts as cut off at its end.
    before = np.concatenate([[0.0], cut[:, 1].cumsum()])[np.floor(cut[:, 0] * BINS).searchsorted(bins, side="left")]
    last = bins.searchsorted(np.floor(times.shorter[:, 0] * BINS), side="right") - 1
    shorter = np.bincount(np.maximum(last, 0), times.shorter[:, 1], len(bins))
    everything = times.weight + cut[:, 1].sum() + shorter.sum()
    spread, survival = np.zeros(len(bins)), np.ones(len(bins))
    for _ in range(_ROUNDS):
        ended = done + spread
        at_risk = everything - before - np.concatenate([[0.0], ended.cumsum()[:-1]])
        survival = np.clip(1 - ended / at_risk, 0, 1).cumprod()
        new = -np.diff(survival, prepend=1.0) * (shorter / (1 - survival))[::-1].cumsum()[::-1]
        if np.abs(new - spread).max() <= 1e-6 * everything:
            break
        spread = new
    return survival, (bins + 1) / BINS


@dataclass(frozen=True, slots=True)
class Popularity:
    """How popular keys are by rank: the exponent, and how that compares with what was seen."""

    keys: int
    zipf: float
    largest_gap: float
    hottest: float  # its share
    hottest_ten: float
    per_key: float  # operations

    @property
    def fits(self) -> bool:
        return self.largest_gap <= TOLERATED_GAP


def popularity(counts: Sequence[tuple[float, int]], spread: float = 1.0) -> Popularity:
    """The exponent of the greatest likelihood; 0 if the keys may well be all alike.

    Args:
        counts: pairs of a number of operations and how many keys have so many.
        spread: of the weights, their mean square to the mean.
    """
    ordered = np.array(sorted(counts, reverse=True), float)
    count, keys = ordered[:, 0], ordered[:, 1]
    until = keys.cumsum()
    number, total = int(until[-1]), float(count @ keys)
    mean = total / number
    even = number == 1 or chi2.sf((keys @ (count - mean) ** 2) / mean / spread, number - 1) >= SIGNIFICANCE
    logs = float(count @ (gammaln(until + 1) - gammaln(until - keys + 1)))
    zipf = 0.0
    if not even:
        found: Any = minimize_scalar(
            lambda s: s * logs / total + log(_harmonic(number, s)), bounds=(0, 6), method="bounded"
        )
        zipf = float(found.x)
    shares = (count * keys).cumsum() / total
    model = np.array([_harmonic(int(rank), zipf) for rank in until]) / _harmonic(number, zipf)
    top = np.interp([1, 10], np.concatenate([[0], until]), np.concatenate([[0], shares]))
    return Popularity(number, zipf, float(np.abs(shares - model).max()), float(top[0]), float(top[1]), mean)


def _harmonic(number: int, s: float) -> float:
    """The sum of rank ** -s over the ranks to *number*: exact for the first, and by Euler and Maclaurin beyond."""
    exact = min(number, 1000)
    head = float((np.arange(1, exact + 1) ** -s).sum())
    if number == exact:
        return head
    a, b = exact + 0.5, number + 0.5  # each term as the area under the curve from half a rank before to half one after
    return head + (log(b / a) if abs(s - 1) < 1e-9 else (b ** (1 - s) - a ** (1 - s)) / (1 - s))


def effective(weight: float, squares: float) -> float:
    """How many rows of equal weight would say as much."""
    return weight**2 / squares if squares > 0 else inf
