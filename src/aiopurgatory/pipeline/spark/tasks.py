"""Work that Spark only hands out: each task is a call of a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def spread(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Call *work* with each of *tasks*, on whatever machines Spark has; returns what the calls return, in order.

    A task whose machine dies is done again elsewhere. No rows go through Java, and so there is no query for it to plan
    and to compile: for a small journal, that took longer than all the rest.

    Args: work: a function of a module, or a partial() of one.
    """
    if not tasks:
        return []
    done: Any = spark.sparkContext.parallelize(list(tasks), len(tasks)).map(work)
    return list(done.collect())
