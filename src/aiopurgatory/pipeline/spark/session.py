"""Makes every Spark session: quiet and tidy."""

from __future__ import annotations

import argparse
import locale
import os
import shlex
import shutil
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
from typing import TYPE_CHECKING, Final, cast

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from .failures import plain_errors
from .java import Java, find_java
from .scratch import remove_abandoned, scratch_folder
from .tasks import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's own log, in the scratch folder.
LOG: Final = "spark.log"
# For any master: failures.py reads Java's traces.
_EVERYWHERE: Final = {"spark.sql.pyspark.jvmStacktrace.enabled": "true"}
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
_STANDALONE: Final = "spark://"
_CONNECT: Final = "sc://"
_CONNECT_PORT: Final = 15002
# Of a call of a Connect server, within 17 s. By default it is ten minutes, but a server that died has lost the session.
_RETRIES: Final = 5
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

    Raises: JavaMissingError: no suitable Java is found. PurgatoryError: the master cannot be reached.
    """
    from pyspark.sql import SparkSession  # here, because a run with nothing to do needs no Spark

    if master.startswith(_CONNECT):
        with (
            plain_errors(Path(scratch)),
            _stopped(_connected(name, master)) as spark,
            scratch_folder(scratch) as folder,
        ):
            _send_package(spark, folder)
            yield spark
        return
    builder = SparkSession.builder.appName(name).config(map=dict(_EVERYWHERE))
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        with _stopped(builder.getOrCreate()) as spark:
            yield spark
        return
    _require_master(master)
    with scratch_folder(scratch) as folder, plain_errors(Path(scratch), folder / LOG):
        local = master.startswith("local")
        log = files("aiopurgatory.pipeline.spark").joinpath("log4j2.properties")
        with as_file(log) as log_settings, _environment(_java_wrapper(folder, find_java()), local=local):
            options = [f'"-Dlog4j2.configurationFile={log_settings.as_uri()}"', f'"-Daiopurgatory.log={folder / LOG}"']
            options += [f'"-Djava.io.tmpdir={folder}"', "-XX:-UsePerfData", _FAST]
            builder = builder.master(master).config(map=dict(_HERE if local else {}))
            builder = builder.config("spark.ui.showConsoleProgress", sys.stderr.isatty())
            builder = builder.config("spark.driver.memory", memory)
            builder = builder.config("spark.driver.extraJavaOptions", " ".join(options))
            builder = builder.config("spark.local.dir", str(folder))
            builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            held: list[int] = []
            with _held_signals(held):
                spark = builder.config(map=dict(settings or {})).getOrCreate()
            with _stopped(spark):
                for number in held:
                    signal.raise_signal(number)
                if not local:
                    _send_package(spark, folder)
                yield spark


@contextmanager
def _held_signals(held: list[int]) -> Iterator[None]:
    """Append signals to stop to *held*, for the block. Without it, a Java that just starts would be left behind.

    It also removes Spark's own handler, which calls Java in the middle of another call of Java: Ctrl-C would print
    tracebacks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(stop, lambda number, _: held.append(number)) for stop in stops]
    try:
        yield
    finally:
        for stop, handler in zip(stops, before, strict=True):
            signal.signal(stop, handler)


@contextmanager
def stage_session(name: str, args: argparse.Namespace) -> Iterator[Spark]:
    """Yield a function that makes the session of the stage *name*, once, with the options of the command line."""
    remove_abandoned(Path(args.out))
    with ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            return stack.enter_context(session(name, scratch=args.out, master=args.master, memory=args.memory))

        yield spark


def _require_master(master: str) -> None:
    """Raises: PurgatoryError: none of the addresses of *master* can be reached. Spark tries for minutes."""
    if not master.startswith((_STANDALONE, _CONNECT)):
        return
    why: Exception | None = None
    for each in master.partition("://")[2].partition("/")[0].split(","):
        host, colon, port = each.rpartition(":")
        try:
            address = host if colon else each, int(port if colon else _CONNECT_PORT)
            socket.create_connection(address, timeout=_MASTER_TIMEOUT).close()
        except (OSError, ValueError) as error:
            why = error
        else:
            return
    raise PurgatoryError(f"master {master} cannot be reached: {why}")


def _connected(name: str, server: str) -> SparkSession:
    """Return a session on a Spark Connect server. It has the server's settings."""
    _require_master(server)
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as Session
    except ImportError as error:
        raise PurgatoryError(f'Spark Connect needs more packages: pip install "pyspark[connect]" ({error})') from None
    spark = Session.builder.remote(server).appName(name).create()
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # an error says it
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    return cast("SparkSession", spark)


def _send_package(spark: SparkSession, folder: Path) -> None:
    """Give this library to the session's workers: they may have none, or another version. They read it in *folder*."""
    home = Path(aiopurgatory.__file__).parents[1]
    spark.addArtifacts(shutil.make_archive(f"{folder}/aiopurgatory", "zip", home, "aiopurgatory"), pyfile=True)


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


def _java_wrapper(folder: Path, java: Java) -> Path:
    """Make a folder that Spark takes for Java's home: its java is a wrapper."""
    absent = "--add-opens=java.base/sun.security.action=ALL-UNNAMED" if java.version >= _NO_SECURITY_ACTION else "-"
    known = {"java": f"{java.home}/bin/java", "absent": absent}
    lines = ["#!/bin/sh", *(f"{name}={shlex.quote(value)}" for name, value in known.items())]
    script = files("aiopurgatory.pipeline.spark").joinpath("wrapper.sh").read_text()
    command = folder / "java" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text("\n".join([*lines, script]))
    command.chmod(0o755)
    return command.parent.parent


@contextmanager
def _environment(java: Path, *, local: bool) -> Iterator[None]:
    """Set the environment that Spark reads, for the block. Its workers run this Python, too."""
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if locale.getencoding().lower() != "utf-8":  # else Java only knows ASCII in file names
        os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
