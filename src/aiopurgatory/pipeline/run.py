"""Journal -> report, model, trace, simulations and advice: every stage in turn, in one session.

  JOURNAL  ->  OUT/sums    as ingest makes them
               OUT/report  as report makes it; its page also shows the advice
               OUT/report.html, OUT/model.json, OUT/advice.md: for people

The trace and its simulations are not kept. Several runs at once, on any machines, do not harm each other. The advice
also keeps to --max-lateness-ms, and by default to 20 ms.

If there is nothing new in the journal and the options are the same, a second call ends after ingest. After an
interruption, even by kill -9, the next call begins again behind what ingest has finished.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from pyspark.sql import SparkSession

import aiopurgatory
from aiopurgatory.replay.target import Setting

from . import advise, generate, simulate
from .attempts import ADVICE, MODEL, PAGE, committed, documents, write
from .fit import fit
from .ingest import ingest, summary
from .journal_files import NO_JOURNAL
from .model import enough, to_json
from .page import promises
from .page.page import write_page
from .report import report

#: What the documents were made from.
_MADE: Final = "made.json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("journal", help="folder of the journal")
    parser.set_defaults(needs={"journal": ("", NO_JOURNAL)})
    parser.add_argument("out", help="folder for all results")
    parser.add_argument("--rows", type=generate.rows, help="requests in the trace (default: 20,000 to 100,000)")
    simulate.grid_arguments(parser)
    promises.arguments(parser)


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Run all stages. Print the advice in one line, and the path of the page."""
    settings = simulate.grid(args.ticks, args.wheel_sizes, args.purge_intervals)
    options = {"rows": args.rows, "max_lateness_ms": vars(args).get("max_lateness_ms", 20.0)}
    print(run_all(spark, args.journal, args.out, settings=settings, limits=promises.limits_of(args), **options))
    print(f"The report: {documents(args.out) / PAGE}")


def run_all(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    rows: int | None = None,
    settings: Sequence[Setting] = (),
    limits: promises.Limits | None = None,
    max_lateness_ms: float = 20.0,
) -> str:
    """Run the stages; return the advice in one line.

    Args:
        rows: requests in the trace (default: as many as show a steady state: 20,000 to 100,000).
        settings: to simulate (default: the settings of simulate.grid()).
        limits: the promises for every minute (default: Limits()).
        max_lateness_ms: 99 % of expirations must be at most this late by the advice (default: 20).

    Raises: PurgatoryError: a stage failed.
    """
    settings = settings or simulate.grid()
    print(*summary(_timed("ingest", lambda: ingest(spark, journal, out))), sep="\n", flush=True)
    options = repr((aiopurgatory.__version__, committed(spark, out)[-1:], rows, settings, limits, max_lateness_ms))
    folder, made = documents(out), dict[str, str]()
    page = folder / PAGE
    with suppress(OSError, ValueError):  # none, or a broken one
        made = json.loads((folder / _MADE).read_text(encoding="utf-8"))
    if made.get("from") == options and page.exists():
        print("Nothing is new since the last run.")
        return made["advice"]
    _timed("report", lambda: report(spark, out))
    if not page.exists():
        _timed("page", lambda: write_page(spark, out, page, limits))
        print(f"A first page, without a model and advice: {page}", flush=True)
    workloads = _timed("fit", lambda: fit(spark, out))
    write(folder / MODEL, to_json(workloads))
    requests = generate.trace(spark.range(rows or enough(workloads)), workloads)
    simulations = _timed("simulate", lambda: simulate.replays(requests, settings).toArrow().to_pylist())
    found = advise.advise(simulations, max_lateness_ms, workloads=workloads)
    write(folder / ADVICE, found.markdown())
    _timed("page", lambda: write_page(spark, out, page, limits, found))
    write(folder / _MADE, json.dumps({"from": options, "advice": found.headline}))
    return found.headline


def _timed(name: str, make: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    result = make()
    print(f"{name}: done in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
    return result
