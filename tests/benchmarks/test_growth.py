"""The growth table: every measurement runs, and is a row of its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_growth_prints_a_row_for_each_size() -> None:
    command = [sys.executable, "benchmarks/bench_growth.py", "--most", "1000"]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    titles = [line.split(" | ")[0].strip("| ") for line in rows]
    assert [title for title in titles if not title[0].isdigit() and title[0] != "-"] == [
        *("pending", "keys", "waiters", "longest turn of", "waits, bytes of each", "tasks")
    ]
    assert titles.count("1,000") == 5
    assert "nan" not in printed
