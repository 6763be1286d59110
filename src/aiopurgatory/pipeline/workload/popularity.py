"""Estimates the popularity of keys: the exponent of Zipf's law, by maximum likelihood.

The true ranks are unknown. They are taken from the counts, so with few operations per key the exponent is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtrc, gammaln

from .completion import TOLERATED_GAP

#: The largest exponent considered.
STEEPEST: Final = 6.0
#: The probability that the test rejects equally popular keys that are.
SIGNIFICANCE: Final = 0.01


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
