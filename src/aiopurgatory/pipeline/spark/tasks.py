"""Runs Python functions as tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def spread(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Call *work* with each of *tasks*, on any machines that Spark has; return the results in order.

    If a machine dies, its tasks are repeated elsewhere. No rows go through Java, so there is no query to plan and
    compile. For a small journal, that took longer than everything else.

    Args: work: a function of a module, or a partial() of one.
    """
    if not tasks:
        return []
    done: Any = spark.sparkContext.parallelize(list(tasks), len(tasks)).map(work)
    return list(done.collect())
