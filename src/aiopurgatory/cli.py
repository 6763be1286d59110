"""The command ``aiopurgatory``."""

from __future__ import annotations

import argparse
import importlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from .errors import PurgatoryError

#: The stages in their order. Each is a module of the pipeline, imported only when it runs.
STAGES: Final = {
    "run": "journal -> the results of all stages, in one session; with nothing new, it ends after ingest",
    "ingest": "journal -> sums of its new rows; impossible rows are quarantined with a reason",
    "report": "sums -> activity per minute, and changes since the day before: tables and one page",
    "fit": "sums -> a model of the workload: arrivals, times to completion, keys",
    "generate": "model -> a trace of any size to replay",
    "simulate": "trace -> replays by the library's own timer and core, for each of many settings",
    "advise": "simulations -> the settings to use, and the cost of the others",
}

#: The exit status after Ctrl-C, as in shells.
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in *arguments* (default: the process's own); return the exit status."""
    name, rest = _chosen(arguments)
    # Without a handler, py4j prints a traceback of forty lines when Java dies.
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        # Shells complete folders with a slash; messages would show two.
        chosen = parser_of(name).parse_args([each.removesuffix("/") or each for each in rest])
        begun = time.monotonic()
        session = importlib.import_module("aiopurgatory.pipeline.session")
        with session.session_of(chosen) as spark:
            chosen.run(spark, chosen)
        print(f"{name}: done in {time.monotonic() - begun:.1f} s", file=sys.stderr)
    except (ImportError, OSError, PurgatoryError) as error:
        return _failed(name, str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        failures = importlib.import_module("aiopurgatory.pipeline.failures")
        return _failed(name, f"{type(error).__name__}: {failures.describe(error)}")
    return 0


def _terminate(number: int, _: object) -> None:
    """End as by Ctrl-C: Spark stops, and its temporary files are removed."""
    raise SystemExit(128 + number)


def _failed(name: str, why: str) -> int:
    print(f"aiopurgatory pipeline {name}: {' '.join(why.split())}", file=sys.stderr)
    return 1


def _chosen(arguments: Sequence[str] | None) -> tuple[str, list[str]]:
    """Return the name of the stage, and the arguments that its own parser reads."""
    parser = argparse.ArgumentParser(prog="aiopurgatory", description="Tools for a fleet of purgatories.")
    version = f"aiopurgatory {importlib.import_module('aiopurgatory').__version__}"
    parser.add_argument("--version", action="version", version=version, help="show the version and exit")
    commands = parser.add_subparsers(metavar="command", required=True)
    pipeline = commands.add_parser(
        "pipeline",
        help="analyse journals, on Spark",
        description="Analyse journals, on Spark. Running a stage again gives the same result.",
    )
    stages = pipeline.add_subparsers(dest="stage", metavar="stage", required=True, title="stages")
    for name, about in STAGES.items():
        stages.add_parser(name, help=about, add_help=False)
    chosen, rest = parser.parse_known_args(arguments)
    return chosen.stage, rest


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of the options of the stage *name*. Its result also has run(spark, options)."""
    stage = importlib.import_module(f"aiopurgatory.pipeline.{name}")
    parser = argparse.ArgumentParser(
        prog=f"aiopurgatory pipeline {name}",
        description=stage.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=stage.run)
    stage.arguments(parser)
    importlib.import_module("aiopurgatory.pipeline.session").arguments(parser)
    return parser
