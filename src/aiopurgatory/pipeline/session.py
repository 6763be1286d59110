"""Makes every Spark session: local by default, or on a cluster, under spark-submit, on Spark Connect, or on Sail."""

from __future__ import annotations

import argparse
import locale
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import urlsplit

from pyspark import accumulators
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import aiopurgatory
from aiopurgatory.errors import PurgatoryError

from . import java
from .attempts import here
from .failures import plain_errors

R = TypeVar("R")

#: Spark's settings in every session on any engine, with a local master, and there for small jobs.
#: Read as a resource: spark-submit may give the package in a zip file.
SQL, _HERE, _SMALL = tomllib.loads(files("aiopurgatory.pipeline").joinpath("session.toml").read_text("utf-8")).values()
#: Seconds to wait for a connection to a master.
_PATIENCE: Final = 5.0
_CONNECT_PORT: Final = 15002
# Of a call of a Connect server, within 17 s. By default it is ten minutes, but a server that died has lost the session.
_RETRIES: Final = 5
#: Seconds for a session to end after an error.
_LAST_CALL: Final = 0.5
#: Folders of more bytes are worth Java's second compiler, and plans.
_LARGE: Final = 100_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line that concern Spark."""
    spark = parser.add_argument_group("Spark (ignored under spark-submit, which has options of its own)")
    about = "Spark's master, as spark://HOST:7077, sc://HOST for Spark Connect, or sail (default: all cores here)"
    spark.add_argument("--master", default="local[*]", help=about)
    spark.add_argument("--memory", default="1g", help="heap of the driver's JVM (default: 1g)")
    about = "a setting of Spark, as spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.2; may be repeated"
    spark.add_argument("--conf", action="append", type=_setting, default=[], metavar="NAME=VALUE", help=about)


def at_once(calls: Iterable[Callable[[], R]]) -> list[R]:
    """Make *calls* of Spark side by side: planning a small job takes longer than running it.

    Returns: what they return.
    """
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda call: call(), calls))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"a setting must be NAME=VALUE, got {text!r}")
    return name, value


def session_of(args: argparse.Namespace) -> AbstractContextManager[SparkSession]:
    """Return session() with the options of the command line."""
    if args.master.startswith("local") and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _look(args)
    large = True  # if nobody knows: of folders elsewhere, and of a file that has gone
    folders = [here(getattr(args, name)) for name in ("journal", "out") if hasattr(args, name)]
    with suppress(OSError):
        files = [islice(each.rglob("*.parquet"), 1_000) for each in folders if each]  # so many say enough
        large = None in folders or any(sum(path.stat().st_size for path in some) > _LARGE for some in files)
    return session(args.master, memory=args.memory, settings=dict(args.conf), large=large)


def _look(args: argparse.Namespace) -> None:
    """Raises: PurgatoryError: a folder here is missing, or cannot be written to. Spark takes seconds to find out."""
    for name, (inside, problem) in args.needs.items():
        folder = here(getattr(args, name))
        if folder and not (folder / inside).exists():
            raise PurgatoryError(problem.format(getattr(args, name)))
    if out := here(args.out):
        place = next(each for each in (out, *out.absolute().parents) if each.exists())
        if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
            raise PurgatoryError(f"out must be a folder to write to, got {args.out}: {place} is not, choose another")


@contextmanager
def session(
    master: str = "local[*]", *, memory: str = "1g", settings: Mapping[str, str] | None = None, large: bool = True
) -> Iterator[SparkSession]:
    """Make a Spark session for the block, or use the active one. A new one has its times in UTC.

    A local session does not depend on the variables and files with which a shell configures another Spark. A process
    has one JVM: later local sessions share the memory of the first. A signal to stop ends the JVM at once.

    Args:
        master: Spark's master, ``sc://HOST`` for Spark Connect, or ``sail`` (default: all cores of this machine).
        memory: heap of the driver's JVM, in Java's notation (default: 1g).
        settings: further settings of Spark (default: none).
        large: let Java compile twice, and Spark plan anew after each stage (default: yes). Without it, a local session
            has one partition after a shuffle, which is quicker for less than about 10 million rows.

    Raises: JavaMissingError: no suitable Java is found. PurgatoryError: the master cannot be reached. JobFailedError: a
        job in the block failed.
    """
    known = SQL | dict(settings or {})
    _require_master(master)
    with plain_errors():
        if existing := SparkSession.getActiveSession():
            made: AbstractContextManager[SparkSession] = nullcontext(existing)
        elif "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
            made = _made(known)
        elif master == "sail":
            made = _on_sail(known)
        elif master.startswith("sc://"):
            made = _connected(master, known)
        else:
            made = _launched(master, memory, large, known)
        with made as spark:
            yield spark


@contextmanager
def _launched(master: str, memory: str, large: bool, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a JVM here, for a local master or a cluster."""
    local = master.startswith("local")
    known = {
        "spark.master": master,
        "spark.app.name": "aiopurgatory",
        "spark.local.dir": str(java.scratch()),
        "spark.sql.warehouse.dir": str(java.scratch() / "warehouse"),
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        **(_HERE if local else {}),
        **(_SMALL if local and not large else {}),
        **settings,
    }
    with _environment(_for_java(local)):
        jvm = java.start(known, memory, os.environ, large=large)
        with _ended_by_signals(jvm.process.kill) as watch:
            os.environ.update(jvm.gateway)
            with _made(known, send=not local) as spark:
                for name in jvm.gateway:  # else a child of this process would use the same JVM
                    del os.environ[name]
                watch()  # Spark has installed a handler of its own, which calls Java in the middle of another call
                yield spark


@contextmanager
def _made(known: Mapping[str, str], *, send: bool = True) -> Iterator[SparkSession]:
    """Make the session on a JVM that runs: spark-submit's, or ours."""
    spark = SparkSession.builder.config(map=dict(known)).getOrCreate()
    with _stopped(spark):
        if send:
            _send_package(spark)
        yield spark


@contextmanager
def _connected(server: str, settings: Mapping[str, str], *, send: bool = True) -> Iterator[SparkSession]:
    """Make a session on a Spark Connect server."""
    # If a package is missing, these name it.
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as Session

    # Functions of pyspark.sql ask this variable for which kind of session they are.
    with _environment(_without_spark() | {"SPARK_CONNECT_MODE_ENABLED": "1"}):
        spark = cast(SparkSession, Session.builder.remote(server).create())
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # an error says it
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])

        def give_up() -> None:
            _try_briefly(spark.interruptAll)
            _try_briefly(spark.client.close)

        with _ended_by_signals(give_up), _stopped(spark):
            for name, value in settings.items():
                with suppress(PySparkException):  # of another engine, or fixed by the server
                    spark.conf.set(name, value)
            if send:
                _send_package(spark)
            yield spark


@contextmanager
def _on_sail(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Make a session on Sail, an engine in this process that speaks Spark Connect."""
    os.environ.setdefault("RUST_LOG", "error")  # else it logs every session
    try:
        from pysail.spark import SparkConnectServer  # type: ignore[import-not-found]  # an extra of its own
    except ImportError as error:
        raise PurgatoryError(f'Sail needs more packages: pip install "aiopurgatory[sail]" ({error})') from None
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    try:
        with _connected(f"sc://127.0.0.1:{server.listening_address[1]}", settings, send=False) as spark:
            yield spark
    finally:
        server.stop()


def _require_master(master: str) -> None:
    """Raises: PurgatoryError: none of the addresses of *master* can be reached. Spark tries for minutes."""
    scheme, _, rest = master.partition("://")
    why: Exception | None = None
    for each in rest.partition("/")[0].split(",") if scheme in ("spark", "sc") else ():
        try:
            at = urlsplit(f"//{each}")
            socket.create_connection((at.hostname or "", at.port or _CONNECT_PORT), timeout=_PATIENCE).close()
            return
        except (OSError, ValueError) as error:
            why = error
    if why:
        raise PurgatoryError(f"master {master} cannot be reached: {why}")


def _send_package(spark: SparkSession) -> None:
    """Give this library to the session's workers: they may have none, or another version. They fetch it later."""
    package = home = Path(aiopurgatory.__file__).parents[1]
    if home.is_dir():  # else it is the archive that spark-submit got
        package = Path(shutil.make_archive(f"{java.scratch()}/aiopurgatory", "zip", home, "aiopurgatory"))
    spark.addArtifacts(str(package), pyfile=True)


@contextmanager
def _stopped(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _try_briefly(spark.stop)  # the first error counts
        raise
    spark.stop()


def _try_briefly(call: Callable[[], object]) -> None:
    """Make a call that may fail or last: the JVM may be gone, and a server may be silent."""

    def quietly() -> None:
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            call()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(_LAST_CALL)


@contextmanager
def _ended_by_signals(give_up: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Call *give_up* when a signal to stop arrives. It must end the calls that wait, and all later ones."""
    received: list[BaseException] = []
    stops = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in stops}

    def end(number: int, _: object) -> None:
        received.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        # Else py4j prints a traceback, and PySpark's servers do.
        logging.getLogger().addHandler(logging.NullHandler())
        for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
        give_up()
        raise received[0]

    def watch() -> None:
        for number in stops:
            signal.signal(number, end)

    watch()
    try:
        yield watch
    except BaseException:
        if received:  # what failed since is a consequence
            raise received[0] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _without_spark() -> dict[str, str]:
    """The environment without the variables of another Spark."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}


def _for_java(local: bool) -> dict[str, str]:
    """The environment of a JVM. Its workers run this Python. The name of this machine may not resolve."""
    found = _without_spark() | {"SPARK_LOCAL_IP": "127.0.0.1"} if local else dict(os.environ)
    utf8 = locale.getencoding().lower() == "utf-8"  # else Java only knows ASCII in file names
    return {"PYSPARK_PYTHON": sys.executable} | found | ({} if utf8 else {"LC_ALL": "C.UTF-8"})


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment for the block: PySpark reads it at many places, and passes it on."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
