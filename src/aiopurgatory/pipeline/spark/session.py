"""Makes every Spark session: quiet, in UTC, and tidy."""

from __future__ import annotations

import argparse
import locale
import os
import shlex
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiopurgatory.errors import PurgatoryError

from .archive import ClassArchive
from .archive import class_archive as find_archive
from .failures import plain_errors
from .java import Java, find_java
from .scratch import remove_abandoned, scratch_folder
from .tasks import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's own log, in the scratch folder.
LOG: Final = "spark.log"
# For any master. Arrow carries the data that Python sees. In UTC, a day is the same on every machine.
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.pyspark.jvmStacktrace.enabled": "true",  # failures.py reads it
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "lz4_raw",  # a fifth less time than the default, and all readers know it
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A hostile row may say any year.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.hadoop.parquet.writer.version": "v2",  # numbers as differences: half the size, in less time
}
# For a local master. A cluster has its own settings.
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Python and numpy do most of the work. Java's second compiler and its collector's threads do not pay for themselves:
# measured on a journal of a million rows, they took half of the CPU time.
_FAST: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Seconds to wait for a connection to a standalone master.
_MASTER_TIMEOUT: Final = 5.0
# The first Java without the package sun.security.action.
_NO_SECURITY_ACTION: Final = 24


@contextmanager
def session(
    name: str,
    *,
    scratch: str | Path,
    master: str = "local[*]",
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
    class_archive: bool = True,
) -> Iterator[SparkSession]:
    """Make a Spark session for the block, or use the existing one, as under ``spark-submit``.

    Args:
        name: the job's name in Spark.
        scratch: folder for temporary files. They get a folder of their own in it, which is removed afterwards. Not
            used under ``spark-submit``: there the cluster decides.
        master: Spark's master (default: all cores of this machine). Not used under ``spark-submit``, nor are the
            arguments below.
        memory: heap of the driver's JVM, in Java's notation (default: 1g).
        settings: further settings of Spark (default: none).
        class_archive: start the JVM from an archive of its classes, made at first use in the user's cache folder
            (default: yes).

    Raises: JavaMissingError: no suitable Java is found. PurgatoryError: the master cannot be reached.
    """
    import pyspark  # here, because a run with nothing to do needs no Spark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config(map=dict(_EVERYWHERE))
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        with _stopped(builder.getOrCreate()) as spark:
            yield spark
        return
    _require_master(master)
    with scratch_folder(scratch) as folder, plain_errors(Path(scratch), folder / LOG):
        archive = ClassArchive()
        java = find_java()
        if class_archive:
            archive = find_archive(java.identity, Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]))
        log = files("aiopurgatory.pipeline.spark").joinpath("log4j2.properties")
        with as_file(log) as log_settings, _environment(_java_wrapper(folder, java, archive)):
            options = [f'"-Dlog4j2.configurationFile={log_settings.as_uri()}"', f'"-Daiopurgatory.log={folder / LOG}"']
            options += [f'"-Djava.io.tmpdir={folder}"', "-XX:-UsePerfData", archive.options, _FAST]
            builder = builder.master(master).config(map=dict(_HERE if master.startswith("local") else {}))
            builder = builder.config("spark.ui.showConsoleProgress", sys.stderr.isatty())
            builder = builder.config("spark.driver.memory", memory)
            builder = builder.config("spark.driver.extraJavaOptions", " ".join(options).strip())
            builder = builder.config("spark.local.dir", str(folder))
            builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            interrupted = signal.getsignal(signal.SIGINT)
            spark = builder.config(map=dict(settings or {})).getOrCreate()
            if threading.current_thread() is threading.main_thread():
                # Spark's own handler calls Java in the middle of another call of Java: Ctrl-C would print tracebacks.
                signal.signal(signal.SIGINT, interrupted)
            with _stopped(spark):
                yield spark


@contextmanager
def stage_session(name: str, args: argparse.Namespace) -> Iterator[Spark]:
    """Yield a function that makes the session of the stage *name*, once, with the options of the command line."""
    known = {"master": args.master, "memory": args.memory, "class_archive": args.class_archive}
    remove_abandoned(Path(args.out))
    with ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            return stack.enter_context(session(name, scratch=args.out, **known))

        yield spark


def _require_master(master: str) -> None:
    """Raises: PurgatoryError: none of the addresses of a standalone *master* can be reached. Spark tries for 90 s."""
    addresses = [each.rpartition(":") for each in master.removeprefix("spark://").split(",")]
    if not master.startswith("spark://"):
        return
    why = ""
    for host, _, port in addresses:
        try:
            socket.create_connection((host, int(port)), timeout=_MASTER_TIMEOUT).close()
        except (OSError, ValueError) as error:
            why = str(error)
        else:
            return
    raise PurgatoryError(f"master {master} cannot be reached: {why}")


@contextmanager
def _stopped(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    except BaseException:
        with suppress(Exception), warnings.catch_warnings():  # the first error counts, and the JVM may be gone
            warnings.simplefilter("ignore")
            spark.stop()
        raise
    spark.stop()


def _java_wrapper(folder: Path, java: Java, archive: ClassArchive) -> Path:
    """Make a folder that Spark takes for Java's home: its java is a wrapper."""
    absent = "--add-opens=java.base/sun.security.action=ALL-UNNAMED" if java.version >= _NO_SECURITY_ACTION else "-"
    known = {"java": f"{java.home}/bin/java", "absent": absent}
    known |= {"recorded": archive.recorded, "target": archive.target}
    lines = ["#!/bin/sh", *(f"{name}={shlex.quote(value)}" for name, value in known.items())]
    script = files("aiopurgatory.pipeline.spark").joinpath("wrapper.sh").read_text()
    command = folder / "java" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text("\n".join([*lines, script]))
    command.chmod(0o755)
    return command.parent.parent


@contextmanager
def _environment(java: Path) -> Iterator[None]:
    """Set the environment that Spark reads, for the block. Its workers run this Python, too."""
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if locale.getencoding().lower() != "utf-8":  # else Java only knows ASCII in file names
        os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
