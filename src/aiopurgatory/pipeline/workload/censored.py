"""Maximum likelihood for a normal distribution when some values are known only as bounds.

Of a right-censored value a lower bound is known, of a left-censored value an upper bound. In gamma = mu / sigma
and theta = 1 / sigma the likelihood is concave, so Newton's method finds its one maximum.

Source: Olsen, Note on the Uniqueness of the Maximum Likelihood Estimator for the Tobit Model, 1978.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, log, pi, sqrt
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri
from scipy.stats import chi2

from .estimate import CONFIDENCE, Array, Interval

_STEPS: Final = 200
_DOUBLINGS: Final = 40
#: Standard deviations of the data below this share of their scale count as none.
_LEAST_DEVIATION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Part:
    """Values in groups: the mean, the variance, and the sums of the weights and their squares, by group."""

    means: Array
    variances: Array
    weights: Array
    squares: Array

    @property
    def weight(self) -> float:
        return float(self.weights.sum())


class Likelihood:
    """The likelihood of exact, right-censored and left-censored values, as a function of (gamma, theta).

    Values are shifted by *middle* and divided by *scale* for the sake of rounding errors.
    """

    def __init__(self, exact: Part, longer: Part, shorter: Part) -> None:
        weight = exact.weight
        self._middle = float(exact.weights @ exact.means) / weight
        squares = float(exact.weights @ ((exact.means - self._middle) ** 2 + exact.variances))
        self._scale = max(sqrt(squares / weight), 1e-3)
        self._weight = weight
        # With no deviation at all, theta would have no bound.
        self._squares = max(squares / self._scale**2, weight * _LEAST_DEVIATION**2)
        self._parts = exact, longer, shorter
        self._over = (longer.means - self._middle) / self._scale, longer.weights
        self._under = (shorter.means - self._middle) / self._scale, shorter.weights
        self._best = self._climb(np.array([0.0, 1.0]), np.eye(2))
        self._top = self._value(self._best)

    @property
    def mu(self) -> float:
        return float(self._middle + self._scale * self._best[0] / self._best[1])

    @property
    def sigma(self) -> float:
        return float(self._scale / self._best[1])

    @property
    def degenerate(self) -> bool:
        """Whether all values are the same, so that there are no intervals."""
        return float(self._best[1]) * _LEAST_DEVIATION > 0.01

    def quantile_interval(self, share: float) -> Interval | None:
        """Return the profile-likelihood interval of the quantile at *share*."""
        z = float(ndtri(share))
        gamma, theta = self._best
        quantile = (gamma + z) / theta

        def profile(at: float) -> float:
            direction = np.array([[at], [1.0]])
            start = np.array([-z, 0.0]) + direction[:, 0] * theta
            return self._value(self._climb(start, direction))

        ends = self._interval(profile, quantile, np.array([1 / theta, -quantile / theta]))
        return ends and (self._middle + self._scale * ends[0], self._middle + self._scale * ends[1])

    def sigma_interval(self) -> Interval | None:
        """The profile-likelihood interval of sigma."""
        gamma, theta = self._best

        def profile(at: float) -> float:
            fixed = float(theta * np.exp(at))
            return self._value(self._climb(np.array([gamma * fixed / theta, fixed]), np.array([[1.0], [0.0]])))

        ends = self._interval(profile, 0.0, np.array([0.0, 1 / theta]))
        return ends and (self.sigma * float(np.exp(-ends[1])), self.sigma * float(np.exp(-ends[0])))

    def _interval(self, profile: Callable[[float], float], best: float, gradient: Array) -> Interval | None:
        """Return the ends: there, the likelihood has fallen by as much as weights and confidence allow."""
        inverse = np.linalg.inv(-self._curvature(self._best))
        plain = float(gradient @ inverse @ gradient)
        design = self._design(gradient @ inverse)
        fall = float(chi2.ppf(CONFIDENCE, 1)) / 2 * design
        ends = []
        for side in (-1, 1):
            near, step = best, side * 1.5 * sqrt(plain * design)
            for _ in range(_DOUBLINGS):
                if self._top - profile(near + step) > fall:
                    break
                near, step = near + step, 2 * step
            else:
                return None
            end: Any = brentq(lambda at: self._top - profile(at) - fall, near, near + step, xtol=1e-4 * abs(step))
            ends.append(float(end))
        return ends[0], ends[1]

    def _value(self, at: Array) -> float:
        gamma, theta = at
        if theta <= 0:
            return -inf
        longer, over = self._over
        shorter, under = self._under
        tail, head = log_ndtr(gamma - theta * longer), log_ndtr(theta * shorter - gamma)
        exact = self._weight * log(theta) - (theta**2 * self._squares + self._weight * gamma**2) / 2
        return float(exact + over @ tail + under @ head)

    def _slopes(self, at: Array) -> Array:
        gamma, theta = at
        (longer, over), (shorter, under) = self._over, self._under
        h, g = over * _hazard(theta * longer - gamma), under * _hazard(gamma - theta * shorter)
        return np.array(
            [
                h.sum() - g.sum() - self._weight * gamma,
                self._weight / theta - theta * self._squares - h @ longer + g @ shorter,
            ]
        )

    def _curvature(self, at: Array) -> Array:
        gamma, theta = at
        found = np.array([[-self._weight, 0.0], [0.0, -self._weight / theta**2 - self._squares]])
        for sign, (bounds, weights) in ((1, self._over), (-1, self._under)):
            z = sign * (theta * bounds - gamma)
            hazard = _hazard(z)
            bend = weights * hazard * (hazard - z)
            mixed = bend @ bounds
            found -= np.array([[bend.sum(), -mixed], [-mixed, bend @ bounds**2]])
        return found

    def _climb(self, at: Array, directions: Array) -> Array:
        """The maximum on the line or plane through *at*, by Newton's method with halved steps."""
        value = self._value(at)
        for _ in range(_STEPS):
            slopes = directions.T @ self._slopes(at)
            along = np.linalg.solve(directions.T @ -self._curvature(at) @ directions, slopes)
            step, gain = directions @ along, float(slopes @ along)
            if not gain > 1e-12 * (1 + abs(value)):
                break
            share = 1.0
            while (found := self._value(at + share * step)) < value + 1e-4 * share * gain and share > 1e-12:
                share /= 2
            if found <= value:
                break
            at, value = at + share * step, found
        return at

    def _design(self, toward: Array) -> float:
        """Return the factor by which the weights increase the variance of the score in a direction."""
        plain = self._variance(toward, weighted=False)
        if plain > 0:
            return self._variance(toward, weighted=True) / plain
        # The score of every value is 0, as that of 0, 0, 1 and 1 is for sigma: the factor is the mean weight.
        return float(sum(part.squares.sum() for part in self._parts) / sum(part.weight for part in self._parts))

    def _variance(self, toward: Array, *, weighted: bool) -> float:
        """Return the variance of the score in a direction: *weighted*, or with each weight as so many rows."""
        gamma, theta = self._best
        exact, longer, shorter = self._parts
        total = 0.0
        # Three points with the moments of a normal distribution stand for each group.
        for shift, part in ((-sqrt(3), 1 / 6), (0.0, 2 / 3), (sqrt(3), 1 / 6)):
            x = (exact.means - self._middle + shift * np.sqrt(exact.variances)) / self._scale
            u = theta * x - gamma
            score = toward[0] * u + toward[1] * (1 / theta - u * x)
            total += part * float((exact.squares if weighted else exact.weights) @ score**2)
        for sign, (bounds, _), part_of in ((1, self._over, longer), (-1, self._under, shorter)):
            score = sign * _hazard(sign * (theta * bounds - gamma)) * (toward[0] - toward[1] * bounds)
            total += float((part_of.squares if weighted else part_of.weights) @ score**2)
        return total


def _hazard(z: Array) -> Array:
    """The density of the normal distribution at *z* over the share above it."""
    hazard: Array = np.exp(-z * z / 2 - log(sqrt(2 * pi)) - log_ndtr(-z))
    return hazard


def finite(interval: Interval | None) -> Interval | None:
    """*interval*, or None if an end is not a finite number."""
    return interval if interval and all(map(isfinite, interval)) else None
