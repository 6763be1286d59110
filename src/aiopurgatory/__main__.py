"""``python -m aiopurgatory``, and what ``spark-submit`` is given."""

from __future__ import annotations

import sys

from aiopurgatory.cli import main

if __name__ == "__main__":
    sys.exit(main())
