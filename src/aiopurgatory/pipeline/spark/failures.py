"""Turns errors of Spark and Java into one line with the remedy. The whole traceback goes to a file."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from aiopurgatory.errors import PurgatoryError

#: The file with the whole traceback of the last failure, in the folder of the results.
TRACE: Final = "error.log"
_LONGEST: Final = 300
_LOG_BYTES: Final = 1_000_000
_HEAP: Final = r"java\.lang\.OutOfMemoryError|Java heap space|GC overhead limit|Total memory usage .* exceeds"
_WORKER: Final = r"Python worker exited unexpectedly|ExecutorLostFailure|^MemoryError|: MemoryError|ArrowMemoryError"
_GONE: Final = (
    r"Answer from Java side is empty|Error while (?:sending|receiving)|"
    r"Error while obtaining a new communication channel|Connection refused"
)
_NO_SERVER: Final = r"StatusCode\.UNAVAILABLE"
_OWN: Final = r"^aiopurgatory\.[\w.]*\.(\w+Error): (.+)$"
_PYTHON: Final = r"^(?:\w+\.)*((?!Py4J)\w+(?:Error|Exception|Interrupt|Exit)): (.+)$"
_JAVA: Final = r"^(?:: |Caused by: )?((?:\w+\.)+\w*(?:Exception|Error|Failure)\w*): (.+)$"


class JobFailedError(PurgatoryError):
    """A job on Spark failed; the message is one line."""


@contextmanager
def plain_errors(out: Path, log: Path | None = None) -> Iterator[None]:
    """Turn errors of Spark and Java within the block into `JobFailedError`. Other errors pass.

    Args:
        out: folder of the results. The whole traceback is written there.
        log: Spark's log, which is added to the traceback (default: none).

    Raises: JobFailedError: Spark or Java failed.
    """
    from py4j.protocol import Py4JError  # here, because a run with nothing to do needs no Spark
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise JobFailedError(f"{explain(error, out)}{_write_traceback(error, out, log)}") from error


def describe(error: Exception, out: Path) -> str:
    """Describe an *error* from outside Spark in one line. Write its traceback, too, unless it is an OSError."""
    if isinstance(error, OSError) and "No space left on device" not in str(error):
        return str(error)
    line = explain(error, out)
    return line if isinstance(error, OSError) else f"{type(error).__name__}: {line}{_write_traceback(error, out, None)}"


def explain(error: BaseException, out: Path) -> str:
    """Return the cause and the remedy, in one line. *out* is the folder of the results."""
    text = _text(error)
    if re.search(r"No space left on device|Disk quota exceeded", text):
        return f"no space left on device: free some on the disk of {out}, and run it again"
    if re.search(_HEAP, text):
        return "Java ran out of memory: give it more, as in --memory 4g, or use fewer cores, as in --master local[1]"
    if re.search(_WORKER, text, re.MULTILINE):
        return (
            "a Python worker died, probably because memory ran out: free some, use fewer cores, as in "
            "--master local[1], or leave more to Python with a smaller --memory"
        )
    if re.search(_NO_SERVER, text):
        return "the Spark Connect server cannot be reached any more: start it again, and run this again"
    if re.search(_GONE, text):
        return "Java died, probably because memory ran out: free some, or give Java less with --memory"
    if own := re.findall(_OWN, text, re.MULTILINE):
        return _short(own[-1][1])
    if python := re.findall(_PYTHON, _after_traceback(text), re.MULTILINE):
        name, message = python[-1]
        return _short(message if name == "ValueError" else f"{name}: {message}")
    if denied := re.findall(r"^.*(?:Permission denied|AccessControlException).*$", text, re.MULTILINE):
        return f"permission denied: {_short(denied[-1])}"
    causes = re.findall(_JAVA, text, re.MULTILINE)
    return _short(f"{causes[-1][0].rsplit('.', 1)[1]}: {causes[-1][1]}" if causes else text)


def _after_traceback(text: str) -> str:
    """Return the part of *text* that a Python worker wrote, or nothing."""
    parts = re.split(r"Traceback \(most recent call last\):", text)
    return re.split(r"^\s+at (?:\w+\.)+\w+", parts[-1], maxsplit=1, flags=re.MULTILINE)[0] if len(parts) > 1 else ""


def _text(error: BaseException) -> str:
    """Return the text of *error* with Java's trace. Some errors ask the JVM for it, and the JVM may have died."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}: Answer from Java side is empty"


def _short(line: str) -> str:
    first = " ".join(line.strip().split("\n", 1)[0].split())
    return first if len(first) <= _LONGEST else first[: _LONGEST - 3] + "..."


def _write_traceback(error: BaseException, out: Path, log: Path | None) -> str:
    """Write the whole traceback; return the end of the line, with its path."""
    parts = ["".join(traceback.format_exception(error))]
    with suppress(OSError):
        if log:
            parts.append(f"Spark's log:\n{log.read_bytes()[-_LOG_BYTES:].decode(errors='replace')}")
    try:
        (out / TRACE).write_text("\n".join(parts))
    except OSError:  # the disk is full, or not ours to write to
        return ""
    return f" (full traceback: {out / TRACE})"
