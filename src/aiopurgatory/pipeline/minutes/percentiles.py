"""Weighted percentiles that add up: counts in buckets that grow by 4 %, so that each value is known to 2 %.

Source: DDSketch (Masson, Rim, Lee, VLDB 2019). Histograms are added by adding counts: minutes make days, and
the batches of a stream make the same table as one batch. Spark's own percentile_approx has no weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

#: No percentile is further than this from a value that has it, relatively.
ERROR: Final = 0.02
_GROWTH: Final = (1 + ERROR) / (1 - ERROR)
_ZERO: Final = -1

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def bucket(value: Column) -> Column:
    """The number of the bucket of a whole *value* >= 0; null for null."""
    number = F.ceil(F.log(value.cast("double")) / math.log(_GROWTH)).cast("int")
    return F.when(value == 0, _ZERO).otherwise(number)


def middle(number: Column) -> Column:
    """The value that stands for all of a bucket."""
    return F.when(number == _ZERO, 0.0).otherwise(F.pow(F.lit(_GROWTH), number) * (2 / (_GROWTH + 1)))


def reached(by: Sequence[str], of: str, weight: str = "operations") -> Column:
    """The share of all *weight* of a group that is in the buckets up to that of the row; rows without one count not."""
    group = Window.partitionBy(*by)
    counted = F.sum(F.when(F.col(of).isNotNull(), F.col(weight)))
    return counted.over(group.orderBy(of).rangeBetween(Window.unboundedPreceding, Window.currentRow)) / counted.over(
        group
    )


def least(of: str, reached: str, share: float) -> Column:
    """Aggregates a group: the least value that *share* of it do not exceed."""
    enough = F.col(reached) >= share - 1e-12  # sums of weights are not exact
    return middle(F.min(F.when(enough, F.col(of))))
