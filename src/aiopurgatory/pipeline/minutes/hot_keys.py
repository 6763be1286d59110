"""The keys under which most operations waited, and how many waited under each at once."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..spark.folders import arrow_place
from .percentiles import Array
from .units import MINUTE, SECOND

#: Sums of keys, as ingest leaves them.
KEYS: Final = "purgatory STRING, key_hash BIGINT, operations DOUBLE, watched DOUBLE, key STRING"
HOT_KEYS: Final = pa.schema(
    [
        ("purgatory", pa.string()),
        ("place", pa.int32()),
        ("key_hash", pa.int64()),
        ("key", pa.string()),
        *((name, pa.float64()) for name in ("operations", "share", "keys_each", "fan_out_mean", "fan_out_peak")),
    ]
)
_CHANGES: Final = "purgatory STRING, key_hash BIGINT, second BIGINT, change DOUBLE"
_CHANGES_SCHEMA: Final = pa.schema(
    [("purgatory", pa.string()), ("key_hash", pa.int64()), ("second", pa.int64()), ("change", pa.float64())]
)
_READ: Final = ["purgatory", "key_hash", "watched_at", "waited_us", "weight"]
_FAN_OUT: Final = "purgatory STRING, key_hash BIGINT, fan_out_mean DOUBLE, fan_out_peak DOUBLE"
_PER_MINUTE: Final = MINUTE // SECOND


def top_keys(keys: DataFrame, top: int) -> DataFrame:
    """KEYS -> purgatory, place, key_hash, key, operations, share, keys_each: the *top* of each purgatory."""
    counted = keys.groupBy("purgatory", "key_hash").agg(
        F.sum("operations").alias("operations"), F.sum("watched").alias("watched"), F.min("key").alias("key")
    )
    everything = Window.partitionBy("purgatory")
    ranked = counted.select(
        "purgatory",
        F.row_number().over(everything.orderBy(F.desc("operations"), "key_hash")).alias("place"),
        "key_hash",
        "key",
        "operations",
        (F.col("operations") / F.sum("operations").over(everything)).alias("share"),
        (F.col("watched") / F.col("operations")).alias("keys_each"),
    )
    return ranked.where(F.col("place") <= top)


def hot_keys(spark: SparkSession, top: pa.Table, files: list[str]) -> pa.Table:
    """HOT_KEYS: the *top* keys with their fan-out, from the clean operations in *files*.

    Fan-out is how many were waiting under the key at once: so many one event has to try; the mean is over the minutes
    in which any were.
    """
    if not len(top):
        return HOT_KEYS.empty_table()
    wanted = set(zip(top.column("purgatory").to_pylist(), top.column("key_hash").to_pylist(), strict=True))
    places = spark.createDataFrame([(file,) for file in files], "path STRING").repartition(
        min(len(files), 4 * spark.sparkContext.defaultParallelism)
    )
    changes = places.mapInArrow(partial(_changes, wanted=wanted), _CHANGES)
    found = changes.groupBy("purgatory", "key_hash").applyInArrow(_fan_out, _FAN_OUT).toArrow()
    joined = top.join(found, ["purgatory", "key_hash"], join_type="left outer")
    for name in ("fan_out_mean", "fan_out_peak"):
        place = joined.column_names.index(name)
        joined = joined.set_column(place, name, pc.fill_null(joined.column(name), 0.0))
    return joined.select(HOT_KEYS.names).cast(HOT_KEYS).sort_by([("purgatory", "ascending"), ("place", "ascending")])


def _changes(batches: Iterable[pa.RecordBatch], wanted: set[tuple[str, int]]) -> Iterator[pa.RecordBatch]:
    """path -> _CHANGES: of the *wanted* keys, by how many more were waiting from a second on."""
    for batch in batches:
        for path in batch.column("path").to_pylist():
            system, place = arrow_place(path)
            parquet = pq.ParquetFile(place, filesystem=system, read_dictionary=["purgatory"])
            for rows in parquet.iter_batches(1 << 18, columns=_READ, use_threads=False):
                yield from _changes_of(rows, wanted)


def _changes_of(rows: pa.RecordBatch, wanted: set[tuple[str, int]]) -> Iterator[pa.RecordBatch]:
    hashes = pa.array(sorted({key_hash for _, key_hash in wanted}), pa.int64())
    rows = rows.filter(pc.is_in(rows.column("key_hash"), value_set=hashes))
    watched = rows.column("watched_at").cast(pa.int64()).to_numpy()
    start = -(-watched // SECOND)
    end = -(-(watched + rows.column("waited_us").to_numpy()) // SECOND)
    codes = rows.column("purgatory")
    names, numbers = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    key_hash, weight = rows.column("key_hash").to_numpy(), rows.column("weight").to_numpy()
    for code, name in enumerate(names):
        own = pa.array([each for purgatory, each in sorted(wanted) if purgatory == name], pa.int64())
        seen = (numbers == code) & (start < end) & pc.is_in(pa.array(key_hash), value_set=own).to_numpy(False)
        if not seen.any():
            continue
        table = pa.table(
            {
                "key_hash": np.concatenate([key_hash[seen]] * 2),
                "second": np.concatenate([start[seen], end[seen]]),
                "change": np.concatenate([weight[seen], -weight[seen]]),
            }
        )
        summed = table.group_by(["key_hash", "second"], use_threads=False).aggregate([("change", "sum")])
        purgatory = pa.array([name] * len(summed), pa.string())
        columns = [purgatory, *(summed.column(each).combine_chunks() for each in summed.column_names)]
        yield pa.RecordBatch.from_arrays(columns, schema=_CHANGES_SCHEMA)


def _fan_out(changes: pa.Table) -> pa.Table:
    """_CHANGES of one key -> _FAN_OUT."""
    seconds, inverse = np.unique(changes.column("second").to_numpy(), return_inverse=True)
    level = np.round(np.bincount(inverse, changes.column("change").to_numpy()).cumsum(), 6)
    mean, peak = fan_out(seconds, level)
    return pa.table(
        {
            "purgatory": changes.column("purgatory").slice(0, 1),
            "key_hash": changes.column("key_hash").slice(0, 1),
            "fan_out_mean": [mean],
            "fan_out_peak": [peak],
        }
    )


def fan_out(seconds: Array, level: Array) -> tuple[float, float]:
    """The mean over the minutes in which any were waiting, and the peak. *level* is how many from each second on."""
    until = np.append(seconds[1:], seconds[-1] + 1)
    waiting = level > 0
    begin, end, level = seconds[waiting], until[waiting], level[waiting]
    if not len(level):
        return 0.0, 0.0
    first, last = begin // _PER_MINUTE, (end - 1) // _PER_MINUTE
    # A minute that two stretches share is counted once.
    shared = np.concatenate([[False], first[1:] == last[:-1]])
    minutes = int((last - first + 1).sum() - shared.sum())
    return float(((end - begin) * level).sum() / _PER_MINUTE / minutes), float(level.max())
