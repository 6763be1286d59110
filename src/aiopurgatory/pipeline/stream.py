"""Journal, while it is written -> the report's measures per minute, kept current; and alerts when too many expire.

Files are read as they appear, by the rules of ingest. The sums of a batch of files are kept under its number. A batch
repeated after a crash replaces its sums, so every row counts exactly once, even after kill -9. Duplicate rows are
dropped. Impossible rows, torn files, and rows older than the newest by more than --watermark are left out and reported.
The next ingest and report include the late rows.

  JOURNAL/operations/**.parquet  ->  OUT/minutes/date=.../hour=.../*.parquet    the measures of the report's minutes
                                     OUT/batches/                               the sums behind them
                                     OUT/checkpoint/                            the position in the journal

Stop it at any time; started with the same folders, it resumes. A file that cannot be read now stops it, and is read at
the next start. If the file was deleted, put an empty one in its place: empty files are skipped.

It prints an alert when the share of a minute's operations that expire leaves the band --expired-share. It prints
"normal again" when the newest minute is back inside by a tenth of the band's width. So a share that hovers at an edge
is reported once. Minutes with fewer operations than --fewest are ignored.
"""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from aiopurgatory.errors import PurgatoryError

from .cleaning.journal_tables import OPERATIONS
from .cleaning.new_files import NEW_ROWS, new_rows
from .minutes.alert import Band, ExpiryAlert
from .minutes.hours import Hours
from .spark import folders
from .spark.failures import JobFailedError, explain
from .spark.session import stage_session
from .spark.source_log import missing

WATERMARK: Final = "10 minutes"
TRIGGER: Final = "10 seconds"
MAX_FILES: Final = 1_000
# The identities of all rows that may be repeated do not fit into the heap.
_STATES: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark's source of whole files. Of these columns only the path is asked for, so that no content is read.
_FILES: Final = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
# New rows that agree in these columns become one row of the sums of a batch.
_BY: Final = ("reason", "purgatory", "kind", "minute", "outcome", "waited", "lateness")
_COUNTS: Final = ("operations", "missed_triggers", "rows")
_GONE: Final = (
    "a file was deleted before it was read; put it back, or an empty one in its place, and start the stream again: "
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder for the table")
    parser.add_argument("--trigger", default=TRIGGER, help=f"time between polls for new files (default: {TRIGGER})")
    about = f"leave out rows that are older than the newest row by more than this (default: {WATERMARK})"
    parser.add_argument("--watermark", default=WATERMARK, help=about)
    parser.add_argument(
        "--max-files", type=int, default=MAX_FILES, help=f"maximum files in a batch (default: {MAX_FILES})"
    )
    parser.add_argument("--once", action="store_true", help="read the files that exist now, and stop")
    shares = (Band.low, Band.high)
    about = f"normal band of the share of operations that expire (default: {Band.low:g} {Band.high:g})"
    parser.add_argument("--expired-share", nargs=2, type=float, default=shares, metavar=("LOW", "HIGH"), help=about)
    about = f"ignore minutes with fewer operations (default: {Band.fewest})"
    parser.add_argument("--fewest", type=int, default=Band.fewest, help=about)


def run(args: argparse.Namespace) -> None:
    """Stream until stopped, or with --once until all files are read."""
    low, high = args.expired_share
    band = Band(low, high, args.fewest)
    folders.refuse_overlap(args.journal, args.out)  # before anything is written there
    with stage_session("stream", args) as spark:
        query = stream(
            spark,
            args.journal,
            args.out,
            watermark=args.watermark,
            expired_share=band,
            trigger=args.trigger,
            max_files=args.max_files,
            once=args.once,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: query.stop())
        follow(query)


def follow(query: StreamingQuery, say: Callable[[str], object] = print) -> int:
    """Wait until *query* ends, and report how many rows of each batch came too late; return their sum."""
    seen, late = -1, 0
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(5))
        for progress in query.recentProgress:
            if progress.batchId > seen:
                seen = progress.batchId
                rows = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
                late += rows
                if rows:
                    say(f"batch {seen}: {rows:,} rows left out: they came too late")
    return late


def stream(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    watermark: str = WATERMARK,
    expired_share: Band | None = None,
    trigger: str = TRIGGER,
    max_files: int = MAX_FILES,
    once: bool = False,
    say: Callable[[str], object] = print,
) -> StreamingQuery:
    """Start a query that keeps the minutes in *out* current; return it.

    Args:
        watermark: how much older than the newest row a row may be (default: 10 minutes). A longer one needs more disk,
            because duplicates are recognised for as long.
        expired_share: normal share of operations that expire (default: Band()). ``say`` gets a line when it is left.
        trigger: time between polls for new files (default: 10 seconds).
        max_files: maximum files in a batch (default: 1,000).
        once: read the files that exist now, and end (default: no).
        say: called with each line of output (default: print).

    Raises: PurgatoryError: there is no journal, one folder is in the other, or *out* holds only a part of the state of
        an earlier stream.
    """
    if max_files < 1:
        raise PurgatoryError(f"max_files must be >= 1, got {max_files}")
    folders.refuse_overlap(journal, out)
    journal, out = folders.qualified(spark, journal), folders.qualified(spark, out)
    source = f"{journal}/{OPERATIONS.name}"
    if not folders.exists(spark, source):
        raise PurgatoryError(f"journal must be a folder with {OPERATIONS.name} in it, got {journal}")
    _refuse_parts(spark, out)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STATES)
    alert = ExpiryAlert(expired_share or Band(), _duration(spark, watermark))
    rows = once_each(_new_rows(spark, source, max_files), watermark)
    writer = rows.writeStream.foreachBatch(_BatchWriter(spark, out, alert, say))
    writer = writer.option("checkpointLocation", f"{out}/checkpoint")
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)).start()


def _refuse_parts(spark: SparkSession, out: str) -> None:
    """Raises: PurgatoryError: the sums are there without the checkpoint, or the reverse."""
    begun = folders.exists(spark, f"{out}/checkpoint/metadata")
    summed = folders.exists(spark, f"{out}/batches")
    if summed and not begun:
        raise PurgatoryError(f"{out}/checkpoint is missing: remove {out}/batches, too, to start over")
    if begun and not summed and folders.exists(spark, f"{out}/minutes"):
        raise PurgatoryError(f"{out}/batches is missing: remove {out}/checkpoint, too, to start over")


def _duration(spark: SparkSession, text: str) -> timedelta:
    """Return *text* as Spark reads it. Raises: PurgatoryError: it is no duration."""
    query = "SELECT unix_seconds(timestamp_seconds(0) + TRY_CAST(:text AS INTERVAL))"
    seconds = spark.sql(query, {"text": text}).collect()[0][0]
    if seconds is None or seconds < 0:
        raise PurgatoryError(f"watermark must be a duration such as '{WATERMARK}', got {text!r}")
    return timedelta(seconds=seconds)


def _new_rows(spark: SparkSession, source: str, max_files: int) -> DataFrame:
    """Return NEW_ROWS of all files, present and future."""
    pattern = folders.literal(source)
    if pattern != source and ":" in source:
        raise PurgatoryError(f"journal must not have a colon in its path beside one of []{{}}*?\\, got {source}")
    reader = spark.readStream.format("binaryFile").schema(_FILES).option("pathGlobFilter", "*.parquet")
    reader = reader.option("recursiveFileLookup", True).option("maxFilesPerTrigger", max_files)
    paths = reader.load(pattern).select("path")
    return paths.mapInArrow(new_rows, StructType(from_arrow_schema(NEW_ROWS).fields))


def once_each(rows: DataFrame, watermark: str) -> DataFrame:
    """NEW_ROWS -> the same without duplicates and without rows older than the newest by more than *watermark*."""
    named = rows.withColumn("good", F.col("reason").isNull())
    return named.withWatermark("ended_at", watermark).dropDuplicatesWithinWatermark(["good", "who", "which"])


def _why(error: Exception, out: Path) -> str:
    """Why a batch failed, in one line."""
    gone = re.search(r"FAILED_READ_FILE\.FILE_NOT_EXIST\] Error while reading file (?:file://)?(.*?)\. ", str(error))
    return _GONE + gone[1] if gone else explain(error, out)


class _BatchWriter:
    """Adds batches to the minutes, one by one."""

    def __init__(self, spark: SparkSession, out: str, alert: ExpiryAlert, say: Callable[[str], object]) -> None:
        self._out = out
        self._hours = Hours(spark, out)
        self._alert = alert
        self._say = say

    def __call__(self, batch: DataFrame, number: int) -> None:
        sums = batch.groupBy(*_BY).agg(*(F.sum(name).alias(name) for name in _COUNTS))
        gone = missing(batch.sparkSession, f"{self._out}/checkpoint", number)
        if gone:
            raise JobFailedError(_GONE + gone[0])
        try:
            added = sums.toArrow()
        except (PySparkException, Py4JError) as error:  # Spark passes on Python's message, but not Java's reason
            raise JobFailedError(_why(error, Path(self._out))) from error
        left_out = added.filter(added.column("reason").is_valid()).select(["reason", "rows"]).sort_by("reason")
        for row in left_out.to_pylist():
            rows = f"{row['rows']:,} rows" if row["rows"] else "a file"
            self._say(f"batch {number}: {rows} left out: {row['reason']}")
        self._check(self._hours.add(number, added.filter(added.column("reason").is_null())))

    def _check(self, minutes: pa.Table) -> None:
        """Report the alert's lines for *minutes*."""
        sums = minutes.group_by(["minute", "purgatory"], use_threads=False)
        sums = sums.aggregate([("operations", "sum"), ("expired", "sum")])
        for row in sums.sort_by([("minute", "ascending"), ("purgatory", "ascending")]).to_pylist():
            for line in self._alert.lines(row["purgatory"], row["minute"], row["operations_sum"], row["expired_sum"]):
                self._say(line)
