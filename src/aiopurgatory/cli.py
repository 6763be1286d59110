"""The command ``aiopurgatory``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from .errors import PurgatoryError

#: In the order in which they are run; each is a module of the pipeline, imported only when it is called.
STAGES: Final = {
    "ingest": "journal -> clean table by date and purgatory; what is impossible is set aside with its reason",
    "report": "clean table -> what the fleet did per minute, what changed since the day before: tables and one page",
    "fit": "clean table -> a model of the workload: arrivals, times to completion, keys",
    "generate": "model -> a trace of any size to replay",
    "simulate": "trace -> what the library's own timer and core would do with it, for each of many settings",
    "advise": "simulations -> the settings to use, and what the others would cost",
    "stream": "journal -> the report's table per minute, kept current while it is written; alerts",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* say, those of the command line by default; returns the exit status."""
    name, rest = _chosen(arguments)
    try:
        stage = importlib.import_module(f"aiopurgatory.pipeline.{name}")
        parser = argparse.ArgumentParser(
            prog=f"aiopurgatory pipeline {name}",
            description=stage.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        stage.arguments(parser)
        _add_spark(parser)
        stage.run(parser.parse_args(rest))
    except (ImportError, OSError, PurgatoryError) as error:
        print(f"aiopurgatory pipeline {name}: {error}", file=sys.stderr)
        return 1
    return 0


def _chosen(arguments: Sequence[str] | None) -> tuple[str, list[str]]:
    """The stage, and what is left for it to read."""
    parser = argparse.ArgumentParser(prog="aiopurgatory", description="Tools around the purgatories of a fleet.")
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
