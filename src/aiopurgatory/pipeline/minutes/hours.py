"""Adds each batch of the stream once to sums by hour, and makes the table of minutes from the sums.

Each hour has one file of sums. It keeps the sums of the newest batch apart from those of all earlier ones, so a batch
that is repeated replaces itself. The cost of a batch depends only on the hours that it has rows of.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ..spark import folders
from .measures import KEYS, MEASURES, measured
from .units import EPOCH, INSTANT, MINUTE

_OF: Final = ("purgatory", "kind", "minute", "outcome", "waited", "lateness")
_COUNTS: Final = ("operations", "missed_triggers")
#: In the column ``batch`` of sums: all batches but the newest.
_BEFORE: Final = -1
_PER_HOUR: Final = 60
MINUTES: Final = pa.schema(
    [
        *((name, pa.string()) for name in KEYS),
        ("minute", INSTANT),
        *((name, pa.float64()) for name in MEASURES),
    ]
)


class Hours:
    """OUT/batches/date=.../hour=.../sums.parquet, and OUT/minutes/date=.../hour=.../minutes.parquet."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._out = out

    def add(self, number: int, activity: pa.Table) -> pa.Table:
        """Add batch *number*, or replace it if it was added before; return MINUTES of its hours.

        All earlier batches must be complete: they cannot be repeated afterwards.
        """
        minutes = [MINUTES.empty_table()]
        hours = activity.column("minute").to_numpy() // _PER_HOUR
        for each in np.unique(hours).tolist():
            day = EPOCH + timedelta(hours=each)
            folder = f"date={day.isoformat()}/hour={each % 24}"
            sums = self._sums(f"{self._out}/batches/{folder}", number, activity.filter(pa.array(hours == each)))
            minutes.append(minutes_of(sums))
            self._replace(f"{self._out}/minutes/{folder}", "minutes.parquet", minutes[-1])
        return pa.concat_tables(minutes)

    def _sums(self, folder: str, number: int, added: pa.Table) -> pa.Table:
        """Write the sums of an hour with those *added*, and return them."""
        added = added.select([*_OF, *_COUNTS])
        parts = [added.append_column("batch", pa.array(np.full(len(added), number)))]
        if folders.exists(self._spark, f"{folder}/sums.parquet"):
            system, place = folders.arrow_place(f"{folder}/sums.parquet")
            with system.open_input_file(place) as file:
                known = pq.ParquetFile(file).read()
            known = known.filter(pa.array(known.column("batch").to_numpy() != number))
            before = pa.array(np.full(len(known), _BEFORE))
            parts.append(_together(known.select([*_OF, *_COUNTS]).append_column("batch", before)))
        sums = pa.concat_tables([part.cast(parts[0].schema) for part in parts])
        self._replace(folder, "sums.parquet", sums)
        return sums

    def _replace(self, folder: str, name: str, table: pa.Table) -> None:
        folders.write_table(f"{folder}/{name}", table)
        for other in folders.names(self._spark, folder):
            if other != name:  # left half-written by a killed process
                folders.remove(self._spark, f"{folder}/{other}")


def _together(sums: pa.Table) -> pa.Table:
    """Merge rows that differ only in their counts."""
    added = sums.group_by([*_OF, "batch"], use_threads=False).aggregate([(name, "sum") for name in _COUNTS])
    added = added.select([*_OF, *(f"{name}_sum" for name in _COUNTS), "batch"])
    return added.rename_columns([*_OF, *_COUNTS, "batch"])


def minutes_of(activity: pa.Table) -> pa.Table:
    """Activity -> MINUTES, by minute, purgatory and kind."""
    if not len(activity):
        return MINUTES.empty_table()
    codes = [activity.column(name).combine_chunks().dictionary_encode() for name in KEYS]
    names = [each.dictionary for each in codes]
    minute = activity.column("minute").to_numpy()
    group = minute
    for each in codes:
        group = group * len(each.dictionary) + each.indices.to_numpy()
    known, first, group = np.unique(group, return_index=True, return_inverse=True)
    columns = {
        name: pa.array(values, from_pandas=True) for name, values in measured(len(known), group, activity).items()
    }
    columns["minute"] = pa.array(minute[first] * MINUTE).cast(MINUTES.field("minute").type)
    for name, each, texts in zip(KEYS, codes, names, strict=True):
        columns[name] = texts.take(each.indices.take(pa.array(first)))
    table = pa.table([columns[name] for name in MINUTES.names], schema=MINUTES)
    return table.sort_by([(name, "ascending") for name in ("minute", *KEYS)])
