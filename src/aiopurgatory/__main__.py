"""The entry point of ``python -m aiopurgatory``, and the script to give to ``spark-submit``."""

from __future__ import annotations

import sys

from aiopurgatory.cli import main

if __name__ == "__main__":
    sys.exit(main())
