"""The options of the benchmarks that run in rounds of their own, and the size that they choose."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TypeVar

S = TypeVar("S")


def parser_of(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options of every such benchmark. Args: doc: its help; rounds: the default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help=f"default: {rounds}")
    parser.add_argument("--compiled", metavar="DIR", help="folder of the compiled library")
    parser.add_argument("--json", metavar="FILE", help="also write the lines to this file")
    parser.add_argument("--lines", action="store_true", help="print no tables")
    short = parser.add_mutually_exclusive_group()
    short.add_argument("--quick", action="store_true", help="one short round")
    short.add_argument("--smoke", action="store_true", help="tiny sizes, to check that everything runs")
    return parser


def chosen(args: argparse.Namespace, usual: S, quick: S, smoke: S, *options: str) -> S:
    """The size for --quick, --smoke or neither, with --rounds and those of *options* that were given."""
    size = smoke if args.smoke else quick if args.quick else usual
    given = {name: getattr(args, name) for name in ("rounds", *options)}
    return replace(size, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
