"""Journal, while it is written -> the report's table per minute, kept current; and a line when too many expire.

Files are taken in as they appear. What each batch adds is kept beside the others, under the batch's number, so that a
batch which is done again after a crash takes the place of itself: every row counts exactly once, even after kill -9.
Rows that are there twice are dropped. Rows that come more than --late after younger ones, and impossible ones, are left
out, and it is said how many; the next ingest and report have the late ones, too.

  JOURNAL/operations/**.parquet  ->  OUT/minutes/date=.../hour=.../*.parquet    as in the report
                                     OUT/batches/                               what it is made from
                                     OUT/checkpoint/                            how far it has come

Stop it as you like; with the same folders it goes on where it was.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from aiopurgatory.errors import PurgatoryError

from .cleaning.journal_tables import OPERATIONS, ended_us
from .ingest import judged
from .minutes.minutes import KEYS, MEASURES, activity, measured
from .spark import folders
from .spark.session import session

LATE: Final = "10 minutes"
EVERY: Final = "10 seconds"
FILES: Final = 1_000
# The names of all rows that may come again are more than a heap holds.
_STATES: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HOUR: Final = ("date", "hour")


@dataclass(frozen=True)
class Band:
    """The share of expirations that is normal."""

    low: float = 0.0
    high: float = 0.5
    #: A minute with fewer operations says nothing.
    fewest: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise PurgatoryError(f"band must be two shares from 0 to 1, the lower first, got {self.low} {self.high}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line may say."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder of the table")
    parser.add_argument("--every", default=EVERY, help=f"how often new files are looked for (default: {EVERY})")
    parser.add_argument("--late", default=LATE, help=f"how far rows may be out of order (default: {LATE})")
    parser.add_argument("--files", type=int, default=FILES, help=f"most files in a batch (default: {FILES})")
    parser.add_argument("--once", action="store_true", help="take in what is there, and stop")
    band = (Band.low, Band.high)
    about = "share of expirations that is normal (default: 0 0.5)"
    parser.add_argument("--band", nargs=2, type=float, default=band, metavar=("LOW", "HIGH"), help=about)


def run(args: argparse.Namespace) -> None:
    """Stream until it is stopped, or with --once until everything is taken in."""
    band = Band(*args.band)
    with session("stream", scratch=args.out, master=args.master, memory=args.memory) as spark:
        query = stream(
            spark, args.journal, args.out, band=band, every=args.every, late=args.late, files=args.files, once=args.once
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: query.stop())
        seen = -1
        while not query.awaitTermination(5):
            seen = _say_late(query, seen)
        _say_late(query, seen)


def _say_late(query: StreamingQuery, seen: int) -> int:
    """Say of each batch after *seen* how many rows came too late; returns the last batch."""
    for progress in query.recentProgress:
        if progress.batchId > seen:
            seen = progress.batchId
            if late := late_rows(progress):
                print(f"batch {seen}: {late:,} rows left out: they came too late")
    return seen


def late_rows(progress: StreamingQueryProgress) -> int:
    """How many rows of a batch were behind the watermark."""
    return sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)


def stream(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    band: Band | None = None,
    every: str = EVERY,
    late: str = LATE,
    files: int = FILES,
    once: bool = False,
    say: Callable[[str], object] = print,
) -> StreamingQuery:
    """Start to keep the table in *out* current; returns the running query.

    Args:
        band: outside of it, ``say`` gets a line.
        every: how often new files are looked for.
        late: how far rows may be out of order.
        files: most files in a batch.
        once: take in what is there now, and end.

    Raises: PurgatoryError: there is no journal.
    """
    source = f"{journal}/{OPERATIONS.name}"
    if not folders.exists(spark, source):
        raise PurgatoryError(f"journal must be a folder with {OPERATIONS.name} in it, got {journal}")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STATES)
    rows = once_each(_judged(_raw(spark, source, files)), late)
    take = _Taker(out, Alarm(band or Band(), _duration(spark, late)), say)
    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", f"{out}/checkpoint")
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()


def _duration(spark: SparkSession, text: str) -> timedelta:
    """What Spark takes *text* for."""
    row = spark.sql("SELECT unix_seconds(timestamp_seconds(0) + CAST(:text AS INTERVAL))", {"text": text}).collect()[0]
    return timedelta(seconds=row[0])


def _raw(spark: SparkSession, source: str, files: int) -> DataFrame:
    """table.raw + file_date, file, row_index of all files, those to come as well."""
    reader = (
        spark.readStream.schema(OPERATIONS.raw).option("recursiveFileLookup", True).option("maxFilesPerTrigger", files)
    )
    rows = reader.option("pathGlobFilter", "*.parquet").option("ignoreCorruptFiles", True).parquet(source)
    file = F.col("_metadata.file_path")
    day = F.try_to_timestamp(F.regexp_extract(file, r"/date=(\d{4}-\d{2}-\d{2})/", 1), F.lit("yyyy-MM-dd"))
    return rows.select(
        "*", day.cast("date").alias("file_date"), file.alias("file"), F.col("_metadata.row_index").alias("row_index")
    )


def _judged(raw: DataFrame) -> DataFrame:
    """Judged rows + ended_at. One of the future would make all others late."""
    rows = judged(raw, OPERATIONS)
    ended = F.when(F.col("reason").isNull(), F.timestamp_micros(ended_us()))
    future = ended > F.current_timestamp() + F.make_interval(hours=F.lit(1))
    rows = rows.withColumn("reason", F.coalesce("reason", F.when(future, "it ended in the future")))
    return rows.withColumn("ended_at", F.when(F.col("reason").isNull(), ended))


def once_each(rows: DataFrame, late: str) -> DataFrame:
    """Judged rows -> the same without copies, and without those that are more than *late* behind the newest."""
    good = F.col("reason").isNull()
    who = F.when(good, F.col("instance")).otherwise(F.col("file"))
    which = F.when(good, F.col("sequence")).otherwise(F.col("row_index"))
    named = rows.select("*", good.alias("good"), who.alias("who"), which.alias("which"))
    return named.withWatermark("ended_at", late).dropDuplicatesWithinWatermark(["good", "who", "which"])


class _Taker:
    """Takes the batches, one by one."""

    def __init__(self, out: str, alarm: Alarm, say: Callable[[str], object]) -> None:
        self._out = out
        self._say = say
        self._alarm = alarm

    def __call__(self, batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            aside = batch.where("reason IS NOT NULL").groupBy("reason").count().orderBy("reason").collect()
            hours = self._add(batch.where("reason IS NULL"), number)
        finally:
            batch.unpersist()
        for row in aside:
            self._say(f"batch {number}: {row['count']:,} rows left out: {row.reason}")
        if hours:
            self._renew(batch.sparkSession, hours)

    def _add(self, rows: DataFrame, number: int) -> list[str]:
        """Put what the batch adds beside what the others have added; returns its hours."""
        added = activity(rows).select("*", F.to_date("minute").alias("date"), F.hour("minute").alias("hour"))
        added = added.withColumn("batch", F.lit(number)).coalesce(1).persist()
        try:
            added.write.mode("overwrite").partitionBy(*_HOUR, "batch").parquet(f"{self._out}/batches")
            return [row[0] for row in added.select(_hour()).distinct().collect()]
        finally:
            added.unpersist()

    def _renew(self, spark: SparkSession, hours: list[str]) -> None:
        """Make the minutes of *hours* anew, from all batches."""
        added = spark.read.parquet(f"{self._out}/batches").where(_hour().isin(hours))
        made = minutes(added).coalesce(1).persist()
        try:
            made.write.mode("overwrite").partitionBy(*_HOUR).parquet(f"{self._out}/minutes")
            second = F.unix_seconds("minute").alias("second")
            sums = made.groupBy("purgatory", second).agg(F.sum("operations"), F.sum("expired"))
            for name, second, operations, expired in sums.orderBy("second", "purgatory").collect():
                for line in self._alarm.lines(name, datetime.fromtimestamp(second, UTC), operations, expired):
                    self._say(line)
        finally:
            made.unpersist()


def _hour() -> Column:
    return F.concat_ws(" ", *_HOUR)


def minutes(added: DataFrame) -> DataFrame:
    """Activity of batches + date, hour -> date, hour, purgatory, kind, minute, MEASURES."""
    by = [*_HOUR, *KEYS, "minute"]
    return measured(added, by).select(*by, *MEASURES)


@dataclass(slots=True)
class _Told:
    """What was said of a purgatory: whether of an alarm that lasts, and of which minutes it is known."""

    newest: datetime
    alarmed: bool = False
    outside: set[datetime] = field(default_factory=set)


class Alarm:
    """Says when the share of expirations leaves its band, and when it is back.

    A minute may grow until rows of it are too late to count: so long it is looked at, and for so long it is remembered
    that it was outside. Hence a minute that only late rows take out of the band is heard of, and heard of once. The
    newest minute decides whether an alarm lasts. After a restart, what there was in the hours at hand is said again.
    """

    def __init__(self, band: Band, late: timedelta) -> None:
        self._band = band
        self._late = late
        self._told: dict[str, _Told] = {}

    def lines(self, purgatory: str, minute: datetime, operations: float, expired: float) -> list[str]:
        """What there is to say of a minute as it is now; those of a batch come in their order."""
        if operations < self._band.fewest:
            return []
        told = self._told.setdefault(purgatory, _Told(minute))
        told.newest = max(told.newest, minute)
        done = told.newest - self._late - timedelta(minutes=1)  # this and older ones do not grow any more
        if minute <= done:
            return []
        share = expired / operations
        outside = not self._band.low <= share <= self._band.high
        decides = minute == told.newest or (outside and minute not in told.outside)
        told.outside = {each for each in told.outside if each > done} | ({minute} if outside else set())
        if not decides or outside == told.alarmed:
            return []
        told.alarmed = outside
        said = (
            f"{purgatory}: {share:.1%} of {operations:,.0f} operations expired in the minute of {minute:%Y-%m-%d %H:%M}"
        )
        normal = f"{self._band.low:.1%} to {self._band.high:.1%}"
        return [f"ALERT {said}, normal is {normal}" if outside else f"normal again: {said}"]
