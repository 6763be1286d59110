"""Common to all estimates: intervals, weights, and when a model fits."""

from __future__ import annotations

from math import inf
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: The lower and the upper end of a confidence interval.
Interval: TypeAlias = tuple[float, float]

#: An interval holds the true value with this probability, if operations are independent of each other.
CONFIDENCE: Final = 0.95
#: The probability that a test rejects a model that is right. With millions of rows a test rejects every model, so the
#: difference must also be large enough to matter.
SIGNIFICANCE: Final = 0.01
#: The model does not fit if its cumulative shares differ from the data's by more than this.
TOLERATED_GAP: Final = 0.05


def effective(weight: float, squares: float) -> float:
    """Return Kish's effective sample size: the number of rows of equal weight with the same information.

    Args:
        weight: the sum of the weights.
        squares: the sum of their squares.
    """
    return weight**2 / squares if squares > 0 else inf
