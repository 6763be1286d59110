"""The command ``aiopurgatory``."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from .errors import PurgatoryError

#: In the order in which they are run; each is a module of the pipeline, imported only when it is called.
STAGES: Final = {
    "run": "journal -> everything below but stream, in one session; a second call makes only what has changed",
    "ingest": "journal -> clean table by date and purgatory; what is impossible is quarantined with its reason",
    "report": "clean table -> what the fleet did per minute, what changed since the day before: tables and one page",
    "fit": "clean table -> a model of the workload: arrivals, times to completion, keys",
    "generate": "model -> a trace of any size to replay",
    "simulate": "trace -> what the library's own timer and core would do with it, for each of many settings",
    "advise": "simulations -> the settings to use, and what the others would cost",
    "stream": "journal -> the report's table per minute, kept current while it is written; alerts",
}

#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* say, those of the command line by default; returns the exit status."""
    name, rest = _chosen(arguments)
    out = Path()
    # Else py4j shows its users a trace of forty lines when they press Ctrl-C.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        stage = importlib.import_module(f"aiopurgatory.pipeline.{name}")
        parser = argparse.ArgumentParser(
            prog=f"aiopurgatory pipeline {name}",
            description=stage.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        stage.arguments(parser)
        _add_spark(parser)
        chosen = parser.parse_args(rest)
        out = Path(chosen.out)
        _run(name, stage, chosen)
    except (ImportError, PurgatoryError) as error:
        return _failed(name, str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        failures = importlib.import_module("aiopurgatory.pipeline.spark.failures")
        return _failed(name, failures.told(error, out))
    return 0


def _run(name: str, stage: ModuleType, chosen: argparse.Namespace) -> None:
    """Run *stage*, and show its progress."""
    progress = importlib.import_module("aiopurgatory.pipeline.spark.progress")
    parts = getattr(stage, "PARTS", None)
    with progress.display(parts or (name,)):
        if parts:
            stage.run(chosen)
        else:
            with progress.stage(name):
                stage.run(chosen)


def _failed(name: str, why: str) -> int:
    print(f"aiopurgatory pipeline {name}: {' '.join(why.split())}", file=sys.stderr)
    return 1


def _chosen(arguments: Sequence[str] | None) -> tuple[str, list[str]]:
    """The stage, and what is left for it to read."""
    parser = argparse.ArgumentParser(prog="aiopurgatory", description="Tools around the purgatories of a fleet.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and exit")
    commands = parser.add_subparsers(metavar="command", required=True)
    pipeline = commands.add_parser(
        "pipeline",
        help="from journals to answers, on Spark",
        description="From journals to answers, on Spark. Each stage can be run again, with the same result.",
    )
    stages = pipeline.add_subparsers(dest="stage", metavar="stage", required=True, title="stages")
    for name, about in STAGES.items():
        stages.add_parser(name, help=about, add_help=False)
    chosen, rest = parser.parse_known_args(arguments)
    return chosen.stage, rest


def _add_spark(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_argument_group("Spark (under spark-submit, its own options count)")
    spark.add_argument("--master", default="local[*]", help="where it runs (default: all cores of this machine)")
    spark.add_argument("--memory", default="1g", help="of the driver, as Java writes it (default: 1g)")
    about = "start Java without the archive of its classes, which is made at first use in ~/.cache/aiopurgatory"
    spark.add_argument("--no-class-archive", dest="class_archive", action="store_false", help=about)


class _Version(argparse.Action):
    """Reads the version when it is asked for: a command need not import the library."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"aiopurgatory {importlib.import_module('aiopurgatory').__version__}")
        parser.exit()
