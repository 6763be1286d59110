"""Turns errors of Spark and Java into one line with the remedy. The whole traceback goes to a file."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
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
_LONGEST: Final = 300
#: What an error says, and what is wrong and how to put it right; and the same of files that cannot be read.
_TEXT: Final = (files("aiopurgatory.pipeline") / "failures.toml").read_text("utf-8")
_TEXTS: Final[dict[str, dict[str, str]]] = tomllib.loads(_TEXT)
_PYTHON: Final = r"^(?:(aiopurgatory)\.)?(?:\w+\.)*((?!Py4J)\w+(?:Error|Exception|Interrupt|Exit)): (.+)$"
_JAVA: Final = r"^(?:: |Caused by: )?(?:\w+\.)+(\w*(?:Exception|Error|Failure)\w*): (.+)$"


class JobFailedError(PurgatoryError):
    """A job on Spark failed; the message is one line."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of Spark and Java within the block into `JobFailedError`. Other errors pass.

    Raises: JobFailedError: Spark or Java failed.
    """
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # they write errors to stderr, as JSON
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    except _FAILURES as error:
        raise JobFailedError(describe(error)) from error


def problem_of_file(error: Exception) -> str:
    """Return why a scan of one file failed. Raises: Exception: *error*, if the machines are the cause, not the file."""
    if any(re.search(pattern, str(error)) for pattern in _TEXTS["remedies"]):
        raise error
    found = ((re.search(pattern, str(error)), problem) for pattern, problem in _TEXTS["files"].items())
    return next((problem.format(*at.groups()) for at, problem in found if at), "is torn, or no Parquet file")


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
    for pattern, remedy in _TEXTS["remedies"].items():
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
