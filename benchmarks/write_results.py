"""python benchmarks/write_results.py build/bus.json build/fleet.json: write the tables of what these files measured.

They replace those in benchmarks/RESULTS.md, of which nothing else changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tables import sections
from tables.results import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="FILE", default=Path(__file__).with_name("RESULTS.md"))
    args = parser.parse_args()
    args.into.write_text(sections.measured(args.into.read_text(), read(args.results)))


if __name__ == "__main__":
    main()
