"""What benchmarks share that run in rounds: options, sizes, turns, processes, and the lines and tables they print."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tables import sections
from tables.machine import Printer
from tables.results import Results

S = TypeVar("S")
T = TypeVar("T")


def parser_of(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options of every such benchmark. Args: doc: its help; rounds: the default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help=f"default: {rounds}")
    parser.add_argument("--compiled", metavar="DIR", help="folder of the compiled library")
    parser.add_argument("--json", metavar="FILE", help="also write the lines to this file")
    parser.add_argument("--lines", action="store_true", help="print no tables")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)  # in a child process
    short = parser.add_mutually_exclusive_group()
    short.add_argument("--quick", action="store_true", help="one short round")
    short.add_argument("--smoke", action="store_true", help="tiny sizes, to check that everything runs")
    return parser


def chosen(args: argparse.Namespace, usual: S, quick: S, smoke: S, *options: str) -> S:
    """The size for --quick, --smoke or neither, with --rounds and the given *options*."""
    size = smoke if args.smoke else quick if args.quick else usual
    given = {name: getattr(args, name) for name in ("rounds", *options)}
    return replace(size, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]


@contextmanager
def printing(
    table: str, args: argparse.Namespace, packages: Iterable[str], programs: Iterable[str | None] = ()
) -> Iterator[Printer]:
    """Print and keep lines of *table*, after one about the machine; then the tables, unless ``--lines`` says no."""
    with Printer(table, args.json) as printer:
        printer.machine(packages, programs)
        with suppress(KeyboardInterrupt):
            yield printer
    if not args.lines:
        print(sections.section(table, Results(printer.found)))


def turns(names: Sequence[T], number: int) -> Sequence[T]:
    """*names* in alternating order by round, so that disturbances of the machine affect all alike."""
    return names if number % 2 == 0 else names[::-1]


def child(command: Sequence[str], library: str | Path | None = None) -> Any:
    """Return what a Python process prints, from JSON. Args: library: folder of the library; None: that on the path."""
    environment = dict(os.environ)
    if library is not None:
        environment["PYTHONPATH"] = os.path.abspath(library)
    pipe, here = subprocess.PIPE, Path(__file__).parent
    run = subprocess.run([sys.executable, *command], stdout=pipe, text=True, check=True, env=environment, cwd=here)
    return json.loads(run.stdout)
