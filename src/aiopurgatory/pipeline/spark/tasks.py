"""Runs Python functions as tasks of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

#: Returns the session. The first call starts it, which takes seconds.
Spark: TypeAlias = "Callable[[], SparkSession]"


def spread(spark: Spark | None, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Call *work* with each of *tasks*, on any machines that Spark has; return the results in order.

    If a machine dies, its tasks are repeated elsewhere. A single task runs in this process, without Spark: a small
    journal does not need a JVM.

    Args:
        spark: None: run all tasks in this process.
        work: a function of a module, or a partial() of one.
    """
    if spark is None or len(tasks) < 2:
        return [work(task) for task in tasks]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({"number": [number], "result": [pickle.dumps(work(tasks[number]))]})

    numbers = spark().range(0, len(tasks), 1, len(tasks))
    found = _in_background(numbers.mapInArrow(each, "number BIGINT, result BINARY").collect)
    return [pickle.loads(row["result"]) for row in sorted(found, key=lambda row: int(row["number"]))]


def _in_background(job: Callable[[], R]) -> R:
    """Call *job* in another thread, and wait for it.

    A signal in the middle of a call of Java blocks all later calls of the same thread until that call is through.
    Here the waiting thread is free to stop Spark.
    """
    done: Future[R] = Future()

    def run() -> None:
        try:
            done.set_result(job())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done.result()
