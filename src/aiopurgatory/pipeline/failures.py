"""Turns errors of Spark and Java into one line with the remedy. The whole traceback goes to a file."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from aiopurgatory.errors import PurgatoryError

from . import java

_FAILURES: tuple[type[Exception], ...] = (PySparkException, ConnectionError)
#: A job failed, and Spark goes on.
OF_JOBS: tuple[type[Exception], ...] = (PySparkException,)
with suppress(ImportError):  # a client of Spark Connect has no Java
    from py4j.protocol import Py4JError, Py4JJavaError

    _FAILURES += (Py4JError,)
    OF_JOBS += (Py4JJavaError,)
#: Loggers of PySpark that write each error to stderr as JSON.
_LOUD: Final = "DataFrameQueryContextLogger", "SQLQueryContextLogger"
_LONGEST: Final = 300
#: What an error says, and what is wrong and how to put it right. The first that fits counts.
_KNOWN: Final = {
    r"No space left on device|Disk quota exceeded": (
        "no space left on device: free some on the disk of the results, or on that of TMPDIR, and run it again"
    ),
    r"OutOfMemoryError|Java heap space|GC overhead limit|Total memory usage .* exceeds|SparkContext was shut down": (
        "Java ran out of memory: give it more, as in --memory 4g, or use fewer cores, as in --master local[1]"
    ),
    r'Cannot run program "(?P<program>[^"]+)"': (
        "{program} is missing on a machine of the cluster: install it there, or set PYSPARK_PYTHON to one that is"
    ),
    r"PYTHON_VERSION_MISMATCH": "the cluster's Python has another version: set PYSPARK_PYTHON to one of this version",
    r"Python worker exited unexpectedly|ExecutorLostFailure|(?m:^MemoryError|: MemoryError)|ArrowMemoryError": (
        "a Python worker died, probably because memory ran out: free some, use fewer cores, as in "
        "--master local[1], or leave more to Python with a smaller --memory"
    ),
    r"StatusCode\.UNAVAILABLE": "the Spark Connect server cannot be reached any more: start it, and run this again",
    r"Answer from Java side is empty|Error while (?:sending|receiving|obtaining a new comm)|Connection refused": (
        "Java died, probably because memory ran out: free some, or give Java less with --memory"
    ),
}
_PYTHON: Final = r"^(?:(aiopurgatory)\.)?(?:\w+\.)*((?!Py4J)\w+(?:Error|Exception|Interrupt|Exit)): (.+)$"
_JAVA: Final = r"^(?:: |Caused by: )?(?:\w+\.)+(\w*(?:Exception|Error|Failure)\w*): (.+)$"


class JobFailedError(PurgatoryError):
    """A job on Spark failed; the message is one line."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of Spark and Java within the block into `JobFailedError`. Other errors pass.

    Raises: JobFailedError: Spark or Java failed.
    """
    loggers = [PySparkLogger.getLogger(name) for name in _LOUD]
    before = [each.disabled for each in loggers]
    try:
        for each in loggers:
            each.disabled = True
        yield
    except _FAILURES as error:
        raise JobFailedError(describe(error)) from error
    finally:
        for each, was_disabled in zip(loggers, before, strict=True):
            each.disabled = was_disabled


def is_known(error: Exception) -> bool:
    """Return whether *error* is of the machines, not of the data."""
    return any(re.search(pattern, str(error)) for pattern in _KNOWN)


def describe(error: BaseException) -> str:
    """Write the traceback of *error* to a file. Return the cause and the remedy in one line, with the file's path."""
    trace = Path(tempfile.gettempdir(), f"aiopurgatory-error-{os.getpid()}.log")
    try:
        trace.write_text("".join(traceback.format_exception(error)) + java.logged(), encoding="utf-8")
    except OSError:  # the disk is full
        return explain(error)
    return f"{explain(error)} (full traceback: {trace})"


def explain(error: BaseException) -> str:
    """Return the cause and the remedy, in one line."""
    try:
        text = str(error)
    except Exception:  # some errors ask the JVM for their text, and it may have died
        text = "Answer from Java side is empty"
    for pattern, remedy in _KNOWN.items():
        if found := re.search(pattern, text):
            return remedy.format(**found.groupdict())
    # Python's worker says its traceback first, then Java its own.
    of_python = text.rpartition("Traceback (most recent call last):")[2] if "Traceback (" in text else ""
    if python := re.findall(_PYTHON, of_python.partition("\n\tat ")[0], re.MULTILINE):
        module, name, message = python[-1]
        return _short(message if module or name == "ValueError" else f"{name}: {message}")
    causes = re.findall(_JAVA, text, re.MULTILINE)
    return _short(": ".join(causes[-1]) if causes else text)


def _short(line: str) -> str:
    first = " ".join(line.strip().split("\n", 1)[0].split())
    return first if len(first) <= _LONGEST else first[: _LONGEST - 3] + "..."
