"""python benchmarks/write_results.py build/benchmarks/results.jsonl ...: write RESULTS.md and the plots beside it.

``--into benchmarks/RESULTS.md build/bus.json build/fleet.json`` replaces only the sections that these files measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tables import writer
from tables.results import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="FILE", help="replace sections of this RESULTS.md")
    args = parser.parse_args()
    if args.into is None:
        writer.write(args.results, args.results[0].parent)
    else:
        args.into.write_text(writer.replace_sections(args.into.read_text(), read(args.results)))


if __name__ == "__main__":
    main()
