"""Journal -> report, model, trace, simulations and advice: every stage in turn, in one session.

  JOURNAL  ->  OUT/sums         as ingest makes them
               OUT/report       as report makes it; its page shows the advice, too
               OUT/trace        as generate makes it
               OUT/simulations  as simulate makes them
               OUT/report.html, OUT/model.json, OUT/advice.md: for people

If there is nothing new in the journal and the options are the same, a second call ends after ingest. After an
interruption, even by kill -9, the next call begins again behind what ingest has finished.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiopurgatory
from aiopurgatory.errors import PurgatoryError
from aiopurgatory.replay.settings import Setting

from . import advise, documents, simulate
from .attempts import newest
from .fit import fit
from .generate import SCHEMA as TRACE
from .generate import trace
from .ingest import ingest
from .model import enough, expected_shares, to_json
from .page.page import write_page
from .page.promises import Limits
from .report import report
from .session import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the documents were made from.
_MADE: Final = "made.json"


class BusyError(PurgatoryError):
    """Another run is using the same folder."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        rows: requests in the trace. More take longer and show rarer cases. Default: as many as show a steady state,
            from 20,000 to 100,000.
        ticks: ticks to simulate, in ms (default: 1 and 10).
        purge_intervals: purge intervals to simulate (default: 0 and 1,000).
        max_lateness_ms: 99 % of expirations must be at most this late, in ms (default: 20).

    Raises: PurgatoryError: an option is refused.
    """

    rows: int | None = None
    ticks: Sequence[float] = (1.0, 10.0)
    purge_intervals: Sequence[int] = (0, 1_000)
    max_lateness_ms: float = 20.0

    def __post_init__(self) -> None:
        self.settings()
        if self.rows is not None and self.rows < 1:
            raise PurgatoryError(f"rows must be >= 1, got {self.rows}")
        if not self.max_lateness_ms > 0:
            raise PurgatoryError(f"max_lateness_ms must be > 0, got {self.max_lateness_ms:g}")

    def settings(self) -> list[Setting]:
        """The settings to simulate."""
        return simulate.grid(self.ticks, purge_intervals=self.purge_intervals)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.add_argument("out", help="folder for all results")
    about = "requests in the trace (default: from 20000 to 100000, as many as show a steady state)"
    parser.add_argument("--rows", type=int, help=about)
    about = "ticks to simulate (default: 1,10)"
    parser.add_argument("--ticks", type=simulate.milliseconds, default=Options.ticks, metavar="MS,...", help=about)
    about = "purge intervals to simulate (default: 0,1000)"
    default = Options.purge_intervals
    parser.add_argument("--purge-intervals", type=simulate.counts, default=default, metavar="N,...", help=about)
    advise.limit(parser)
    parser.add_argument("--again", action="store_true", help="make everything again, even if nothing is new")
    documents.argument(parser, "the page, the model and the advice")


def run(args: argparse.Namespace) -> None:
    """Run all stages. Print the advice in one line, and the path of the page."""
    options = Options(**{name: getattr(args, name) for name in Options.__dataclass_fields__})
    folder = documents.folder(args.documents, args.out)
    with _alone(folder), session_of(args, args.journal) as spark:
        headline = run_all(spark, args.journal, args.out, options, folder=folder, again=args.again)
    print(headline)
    print(f"The report: {folder / documents.PAGE}")


def run_all(spark: SparkSession, journal: str, out: str, options: Options, *, folder: Path, again: bool = False) -> str:
    """Run the stages; return the advice in one line.

    Args:
        folder: for documents.
        again: make everything again, even if nothing is new (default: no).

    Raises: PurgatoryError: a stage failed.
    """
    _timed("ingest", lambda: ingest(spark, journal, out))
    made_from = {"library": aiopurgatory.__version__, "sums": newest(spark, out), **asdict(options)}
    known = _read(folder / _MADE)
    if known.get("from") == json.loads(json.dumps(made_from)) and (folder / documents.PAGE).exists() and not again:
        _say("Nothing is new since the last run.")
        return str(known["advice"])
    page = folder / documents.PAGE
    _timed("report", lambda: report(spark, out))
    if not page.exists():
        _timed("page", lambda: write_page(spark, out, page))
        print(f"A first page, without a model and advice: {page}", flush=True)
    headline = _advised(spark, out, options, folder)
    documents.write(folder / _MADE, json.dumps({"from": made_from, "advice": headline}))
    return headline


def _advised(spark: SparkSession, out: str, options: Options, folder: Path) -> str:
    workloads = _timed("fit", lambda: fit(spark, out))
    documents.write(folder / documents.MODEL, to_json(workloads))
    requests = trace(spark.range(options.rows or enough(workloads)), workloads)
    _timed("generate", lambda: requests.write.mode("overwrite").parquet(f"{out}/trace"))
    recorded = spark.read.schema(TRACE).parquet(f"{out}/trace")
    replays = simulate.replays(recorded, options.settings())
    _timed("simulate", lambda: replays.write.mode("overwrite").parquet(f"{out}/simulations"))
    advice = advise.advise(advise.simulated(spark, out), options.max_lateness_ms, workloads=workloads)
    documents.write(folder / documents.ADVICE, advice.markdown())
    limits = Limits(expected_shares=expected_shares(workloads))
    if options.max_lateness_ms != Options.max_lateness_ms:
        limits = replace(limits, max_lateness_ms=options.max_lateness_ms)
    _timed("page", lambda: write_page(spark, out, folder / documents.PAGE, limits, advice))
    return advice.headline


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder. The system releases it when the process ends, even by SIGKILL."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BusyError(f"another run is using {folder}: wait for it, or choose another folder") from None
    finally:
        os.close(lock)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # none, or a broken one
        return {}


def _timed(name: str, make: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    result = make()
    _say(f"{name}: done in {time.monotonic() - begun:.1f} s")
    return result


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
