"""Finds rows that a journal holds twice: first the files that may have some, then the rows.

Files are compared row by row only if their ranges overlap, or if a number in them is repeated or out of order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from ..minutes.columns import Array, Columns
from ..spark.tasks import Spark
from .files import read
from .journal_tables import TABLES, Table
from .judging import judge

#: The writer of the rows, their lowest and highest number, and whether the numbers only go up.
Range = tuple[str, int, int, bool]
_GOOD_TYPES: Final = "who STRING, number BIGINT, path STRING, row BIGINT"
_GOOD: Final = pa.schema([("who", pa.string()), ("number", pa.int64()), ("path", pa.string()), ("row", pa.int64())])


def ranges(good: Columns, table: Table, file: Array) -> Iterator[tuple[int, Range]]:
    """Yield the ranges of good rows of some files, each with its file's number.

    A file has one range for each of its writers.

    Args: file: the number of each row's file.
    """
    codes, names = _who(good, table)
    group = file * len(names) + codes
    order = np.argsort(
        group.astype(np.min_scalar_type(group.max(initial=0))), kind="stable"
    )  # by radix, if it is small
    group, numbers = group[order], good.numbers(table.counter)[order]
    is_new = np.concatenate([[True], group[1:] != group[:-1]])
    goes_up = is_new | np.concatenate([[True], numbers[1:] > numbers[:-1]])
    first = np.flatnonzero(is_new)
    parts = [np.minimum.reduceat(numbers, first), np.maximum.reduceat(numbers, first)]
    parts += [np.logical_and.reduceat(goes_up, first)]
    for each, low, high, up in zip(group[first].tolist(), *(part.tolist() for part in parts), strict=True):
        yield each // len(names), (names[each % len(names)], low, high, up)


def suspects(files: Iterable[tuple[str, list[Range]]]) -> set[str]:
    """Return the paths of files that may share a row with another file, or hold one twice."""
    found = set()
    by_who: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for path, own in files:
        for who, first, last, goes_up in own:
            by_who[who].append((first, last, path))
            if not goes_up:
                found.add(path)
    for every in by_who.values():
        every.sort()
        furthest = every[0]
        for before, here in pairwise(every):
            furthest = max(furthest, before, key=lambda each: each[1])
            if furthest[1] >= here[0]:
                found |= {furthest[2], before[2], here[2]}
    return found


def copies(files: pa.Table, name: str, spark: Spark | None) -> pa.Table:
    """path, file_day -> path, row: the numbers of good rows that also come earlier.

    Args: spark: None: find them in this process.
    """
    if spark is None:
        rows = pa.Table.from_batches(_good_rows(files.to_batches(), name), _GOOD).sort_by(
            [(each, "ascending") for each in _GOOD.names]
        )
        who, number = rows["who"].combine_chunks().dictionary_encode().indices.to_numpy(), rows["number"].to_numpy()
        repeats = np.append(False, (who[1:] == who[:-1]) & (number[1:] == number[:-1]))[: len(rows)]
        return rows.filter(pa.array(repeats)).select(["path", "row"])
    good = spark().createDataFrame(files).mapInArrow(partial(_good_rows, name=name), _GOOD_TYPES)
    place = "row_number() OVER (PARTITION BY who, number ORDER BY path, row) AS place"
    return good.selectExpr("path", "row", place).where("place > 1").select("path", "row").toArrow()


def _good_rows(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    table = TABLES[name]
    for batch in batches:
        for file in batch.to_pylist():
            columns = Columns(read(file["path"], table).table)
            good = np.flatnonzero(judge(columns, table, file["file_day"])[0] == 0)
            codes, names = _who(columns, table)
            who = pa.array(names, pa.string()).take(pa.array(codes[good]))
            numbers = columns.numbers(table.counter)[good]
            path = pa.array([file["path"]], pa.string()).take(pa.array(np.zeros(len(good), np.int8)))
            yield pa.RecordBatch.from_arrays([who, numbers, path, good], schema=_GOOD)


def _who(columns: Columns, table: Table) -> tuple[np.ndarray, list[str]]:
    """Return for each row the number of its writer, and the writers' names."""
    codes, names = columns.codes(table.who[0])
    for each in table.who[1:]:
        more, texts = columns.codes(each)
        codes = codes.astype(np.int64) * (len(texts) + 1) + more
        names = [f"{len(name)} {name} {text}" for name in names for text in [*texts, ""]]
    return codes, names
