"""Weighted percentiles that add up: counts in buckets that grow by 4 %, so that each value is known to 2 %.

Source: DDSketch (Masson, Rim, Lee, VLDB 2019). Sums of counts are sums of histograms: minutes make days, and the rows of
a stream make the same table as those of a batch. Spark's own percentile_approx has no weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
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


def percentiles(
    counts: DataFrame, by: Sequence[str], of: str, weight: str, named: Mapping[str, float] = PERCENTILES
) -> DataFrame:
    """*by*, bucket *of*, *weight* -> *by* and a column for each of *named*: the least value that so many do not exceed."""
    summed = counts.where(F.col(of).isNotNull()).groupBy(*by, of).agg(F.sum(weight).alias("weight"))
    group = Window.partitionBy(*by)
    upwards = group.orderBy(of).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    shares = summed.withColumn("share", F.sum("weight").over(upwards) / F.sum("weight").over(group))
    return shares.groupBy(*by).agg(*(_least(of, share).alias(name) for name, share in named.items()))


def _least(of: str, share: float) -> Column:
    reached = F.col("share") >= share - 1e-12  # sums of weights are not exact
    return middle(F.min(F.when(reached, F.col(of))))
