"""Weighted percentiles that add up: counts in buckets that grow by 4 %, so each value is accurate to 2 %.

Source: DDSketch (Masson, Rim, Lee, VLDB 2019). Histograms are added by adding counts: minutes make days.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: The largest relative error of a percentile.
ERROR: Final = 0.02
_GROWTH: Final = (1 + ERROR) / (1 - ERROR)
#: The bucket of the value 0, and the number that means no value.
ZERO: Final = -1
NONE: Final = -2
# There are fewer: the largest int64 is in bucket 1,092.
_BUCKETS: Final = 2_048

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def bucket(values: Array) -> Array:
    """Return the numbers of the buckets of whole *values* >= 0."""
    found = np.ceil(np.log(np.maximum(values, 1)) / math.log(_GROWTH)).astype(np.int16)
    found[values == 0] = ZERO
    return found


def middle(number: Array) -> Array:
    """Return the values that represent the buckets."""
    return np.where(number == ZERO, 0.0, np.power(_GROWTH, number.astype(float)) * (2 / (_GROWTH + 1)))


def least(group: Array, number: Array, weight: Array, groups: int, shares: Sequence[float]) -> Array:
    """Return for each of *groups* and *shares* the smallest value that this share of the group does not exceed.

    Args:
        group: the group of each count, from 0.
        number: the bucket of each count; counts with NONE are ignored.
        weight: the counts.
        groups: the number of groups.
        shares: the percentiles, as shares from 0 to 1.

    Returns: groups x shares; NaN where nothing is counted.
    """
    known = number != NONE
    group, number, weight = group[known], number[known], weight[known]
    order = np.argsort(group.astype(np.int64) * _BUCKETS + number)
    group, number, weight = group[order], number[order], weight[order]
    total = np.bincount(group, weight, groups)
    upto = np.concatenate([[0.0], weight.cumsum()])
    last = np.bincount(group, minlength=groups).cumsum()
    first = np.concatenate([[0], last[:-1]])
    # Sums of weights are not exact.
    wanted = upto[first][:, None] + total[:, None] * (np.asarray(shares) - 1e-9)
    at = np.clip(np.searchsorted(upto[1:], wanted), first[:, None], np.maximum(last - 1, first)[:, None])
    found = middle(np.append(number, 0)[np.minimum(at, len(number))])
    found[total == 0] = np.nan
    return found
