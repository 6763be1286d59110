"""python benchmarks/bench_pipeline.py --rows 1000000 10000000: measure rows/s of ingest and report on a journal.

Each size runs in a process of its own on local[2]; the heap of the driver is 1 GB, and all of Spark runs in it. A
session that has just begun spends half of its time on loading and compiling what it is to run. So both stages run twice
in it, and the second time is that of one that lives on.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiopurgatory.pipeline.cleaning.journal_tables import OPERATIONS, STATISTICS
from aiopurgatory.pipeline.ingest import ingest
from aiopurgatory.pipeline.report import report
from aiopurgatory.pipeline.spark.session import session

ROWS_PER_FILE = 250_000
HOURS = 24


def operations(spark: SparkSession, rows: int) -> DataFrame:
    """A day of three kinds of requests: most complete within milliseconds, a tenth expires."""
    files = max(1, rows // ROWS_PER_FILE)
    chance, noise = F.rand(1), F.randn(2)
    table = spark.range(0, rows, 1, files).select(
        F.lit(1).cast("short").alias("schema_version"),
        F.element_at(F.array(F.lit("fetch"), F.lit("produce")), (F.col("id") % 2 + 1).cast("int")).alias("purgatory"),
        F.concat(F.lit("host-"), F.spark_partition_id()).alias("instance"),
        F.col("id").alias("sequence"),
        F.concat(F.lit("Delayed"), (F.col("id") % 3).cast("string")).alias("kind"),
        F.lit(1).alias("key_count"),
        F.xxhash64(F.floor(1000 * F.pow(F.rand(3), 3))).alias("key_hash"),
        F.lit(None).cast("string").alias("key"),
        F.timestamp_micros(F.lit(1_795_219_200_000_000) + (F.rand(4) * 3_599e6).cast("long")).alias("watched_at"),
        F.when(chance < 0.1, 500_000 + (F.rand(5) * 2000).cast("long"))
        .otherwise((F.exp(noise) * 15_000).cast("long"))
        .alias("waited_us"),
        F.lit(500_000).cast("long").alias("timeout_us"),
        F.when(chance < 0.1, "expired").when(chance < 0.98, "completed").otherwise("cancelled").alias("outcome"),
        F.when(chance < 0.1, (F.rand(5) * 2000).cast("long")).alias("lateness_us"),
        (chance > 0.999).alias("missed_trigger"),
        F.lit(1.0).alias("weight"),
        (F.spark_partition_id() * HOURS / files).cast("int").alias("part"),
    )
    hour = F.make_interval(hours=F.col("part"))
    missed = F.col("missed_trigger") & (F.col("outcome") == "completed")
    table = table.withColumn("watched_at", F.col("watched_at") + hour).withColumn("missed_trigger", missed)
    return table.select(*OPERATIONS.raw.names, F.lit("2026-11-21").alias("date"), F.lpad("part", 2, "0").alias("hour"))


def statistics(spark: SparkSession) -> DataFrame:
    """Snapshots of one instance of each purgatory, every 10 s."""
    counts = [field.name for field in STATISTICS.raw if field.dataType.simpleString() == "bigint"]
    return spark.range(HOURS * 360).select(
        F.lit(1).cast("short").alias("schema_version"),
        F.explode(F.array(F.lit("fetch"), F.lit("produce"))).alias("purgatory"),
        F.lit("host-0").alias("instance"),
        F.timestamp_micros(F.lit(1_795_219_200_000_000) + F.col("id") * 10_000_000).alias("at"),
        *(F.when(F.lit(name == "pending"), 50).otherwise(F.col("id") * 7).cast("long").alias(name) for name in counts),
        F.lit("2026-11-21").alias("date"),
        F.lit("00").alias("hour"),
    )


def measure(rows: int, cores: int) -> dict[str, float]:
    """Seconds of each stage, and the memory of the process that runs all of Spark, in MB."""
    with tempfile.TemporaryDirectory() as folder, session("bench", scratch=folder, master=f"local[{cores}]") as spark:
        for name, table in (("operations", operations(spark, rows)), ("statistics", statistics(spark))):
            table.write.partitionBy("date", "hour").parquet(f"{folder}/journal/{name}")
        took: dict[str, float] = {}
        for when in ("", "again_"):
            start = time.perf_counter()
            counts = ingest(spark, f"{folder}/journal", f"{folder}/clean")["operations"]
            ingested = time.perf_counter()
            report(spark, f"{folder}/clean", f"{folder}/report")
            reported = time.perf_counter()
            assert counts.rows_out == rows
            both = reported - start
            took |= {f"{when}ingest": ingested - start, f"{when}report": reported - ingested, f"{when}both": both}
            took[f"{when}rows_s"] = rows / both
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        heap = runtime.maxMemory() / 2**20
        size = sum(path.stat().st_size for path in Path(folder, "journal").rglob("*.parquet")) / 2**20
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    java = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    return took | {"journal_mb": size, "heap_mb": heap, "java_mb": java, "python_mb": python}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.rows[0], args.cores)))
        return
    for rows in args.rows:
        command = [sys.executable, __file__, "--one", "--rows", str(rows), "--cores", str(args.cores)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        figures = "  ".join(f"{name} {value:,.1f}" for name, value in json.loads(said).items())
        print(f"{rows:,} rows on local[{args.cores}]: {figures}", flush=True)


if __name__ == "__main__":
    main()
