"""Estimates of the time to completion: a log-normal distribution, its intervals, and how well it fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, sqrt
from typing import Any, Final, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from .censored import Likelihood, Part, finite
from .estimate import TOLERATED_GAP, Array, Interval, effective

#: Bins of the histograms of times, per factor of e.
BINS: Final = 64
PERCENTILES: Final = (50, 90, 99)
#: With fewer completed rows, no interval is given.
FEWEST: Final = 3
# The most rounds of an iteration that usually converges in one or two dozen.
_ROUNDS: Final = 1_000


class Sum(Protocol):
    """Sums over rows with times in one bin. x is the logarithm of a time in microseconds.

    Attributes: number: the bin; weight, squares: of the weights; total, total_squares: weighted sums of x and x**2.
    """

    number: Any
    weight: Any
    squares: Any
    total: Any
    total_squares: Any


@dataclass(frozen=True, slots=True)
class Binned:
    """Logarithms of times in microseconds, by bin."""

    bins: Array
    part: Part

    @classmethod
    def of(cls, sums: Iterable[Sum]) -> Binned:
        ordered = sorted(sums, key=lambda each: each.number)
        number, weight, squares, total, total_squares = (
            np.array(
                [(each.number, each.weight, each.squares, each.total, each.total_squares) for each in ordered], float
            )
            .reshape(-1, 5)
            .T
        )
        means = total / weight
        variances = np.maximum(total_squares / weight - means**2, 0.0)
        # Rounding leaves a variance where all values are the same.
        variances[variances < 1e-12 * (1 + means**2)] = 0.0
        return cls(number.astype(np.int64), Part(means, variances, weight, squares))


@dataclass(frozen=True, slots=True)
class Times:
    """Times to completion: exact, right-censored (it takes longer) and left-censored (it took less)."""

    completed: Binned
    longer: Binned
    shorter: Binned

    @property
    def followed(self) -> float:
        """The longest time that an operation was observed, completed or not, as a logarithm."""
        means = (each.part.means for each in (self.completed, self.longer, self.shorter))
        return max(float(each[-1]) for each in means if len(each))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The distribution, and how it compares with the data (by Turnbull's estimate if they are censored)."""

    p50_ms: float
    sigma: float
    #: Confidence intervals by name: p50_ms, sigma, p99_ms; None where there are too few data.
    intervals: dict[str, Interval | None]
    #: Percentiles beyond this are extrapolated.
    followed_ms: float
    largest_gap: float
    #: The time of the largest gap, and the shares completed by then.
    gap_at_ms: float
    gap_seen: float
    gap_model: float
    #: A gap of this size may be chance.
    noise: float
    #: Times seen, by percentile; None: fewer operations completed in time.
    seen_ms: dict[int, float | None]

    @property
    def fits(self) -> bool:
        return self.largest_gap <= max(TOLERATED_GAP, self.noise)

    def percentile_ms(self, percent: float) -> float:
        return self.p50_ms * exp(self.sigma * float(ndtri(percent / 100)))

    def extrapolated(self, percent: float) -> bool:
        """Whether the percentile lies beyond every time seen. Less than 0.1 % beyond is rounding."""
        return self.percentile_ms(percent) > self.followed_ms * 1.001


def log_normal(times: Times) -> LogNormal | None:
    """Return the maximum-likelihood log-normal distribution; None: nothing completed."""
    exact = times.completed.part
    if exact.weight <= 0:
        return None
    likelihood = Likelihood(exact, times.longer.part, times.shorter.part)
    survival, edges = _kaplan_meier(times)
    model: Array = ndtr((edges - likelihood.mu) / likelihood.sigma)
    gaps = np.abs((1 - survival) - model)
    worst = int(gaps.argmax())
    seen: dict[int, float | None] = {}
    for percent in PERCENTILES:
        reached = np.flatnonzero(1 - survival >= percent / 100)
        seen[percent] = exp(edges[reached[0]]) / 1000 if len(reached) else None
    rows = effective(exact.weight, float(exact.squares.sum()))
    return LogNormal(
        p50_ms=exp(likelihood.mu) / 1000,
        sigma=likelihood.sigma,
        intervals=_intervals(likelihood, rows),
        followed_ms=exp(times.followed) / 1000,
        largest_gap=float(gaps[worst]),
        gap_at_ms=exp(float(edges[worst])) / 1000,
        gap_seen=float(1 - survival[worst]),
        gap_model=float(model[worst]),
        noise=1.63 / sqrt(rows),
        seen_ms=seen,
    )


def _intervals(likelihood: Likelihood, rows: float) -> dict[str, Interval | None]:
    if rows < FEWEST or likelihood.degenerate:
        return dict.fromkeys(("p50_ms", "sigma", "p99_ms"))
    return {
        "p50_ms": _in_ms(likelihood.quantile_interval(0.5)),
        "sigma": likelihood.sigma_interval(),
        "p99_ms": _in_ms(likelihood.quantile_interval(0.99)),
    }


def _in_ms(logs: Interval | None) -> Interval | None:
    with np.errstate(over="ignore"):
        return finite(logs and (float(np.exp(logs[0])) / 1000, float(np.exp(logs[1])) / 1000))


def _kaplan_meier(times: Times) -> tuple[Array, Array]:
    """Return the shares not complete at the upper edges of the bins with completed operations, and those edges.

    Kaplan-Meier, extended by Turnbull's iteration for left-censored times: share each over the bins below its bound in
    proportion to the current estimate; repeat until stable. Without a bin below its bound it counts in the first.
    Source: Turnbull, Nonparametric Estimation of a Survivorship Function with Doubly Censored Data, 1974. Differs: his
    times may also lie between the bins; then a single last try, a bit later than all others, pulls down the tail.
    """
    bins, done = times.completed.bins, times.completed.part.weights
    cut = times.longer.part.weights
    # A time censored in a bin counts as censored at its end.
    before = np.concatenate([[0.0], cut.cumsum()])[times.longer.bins.searchsorted(bins, side="left")]
    last = bins.searchsorted(times.shorter.bins, side="right") - 1
    shorter = np.bincount(np.maximum(last, 0), times.shorter.part.weights, len(bins))
    everything = done.sum() + cut.sum() + shorter.sum()
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
