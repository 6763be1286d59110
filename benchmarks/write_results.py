"""python benchmarks/write_results.py build/benchmarks/results.jsonl ...: write RESULTS.md and the plots beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from tables import writer

if __name__ == "__main__":
    writer.write([Path(path) for path in sys.argv[1:]], Path(sys.argv[1]).parent)
