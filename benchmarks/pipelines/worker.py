"""python -m pipelines.worker {"memory": "1g", ...}: make the report of a journal; prints each step's time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .usage import Tree, peaks_of_tree

#: Journal and an empty folder -> rows.
Once = Callable[[Path, Path], int]


@contextmanager
def pipeline(cores: int, memory: str) -> Iterator[Once]:
    from aiopurgatory.pipeline.ingest import ingest
    from aiopurgatory.pipeline.report import report
    from aiopurgatory.pipeline.session import session

    with session(f"local[{cores}]", memory=memory, large=True) as spark:

        def once(journal: Path, out: Path) -> int:
            counts = ingest(spark, str(journal), str(out))["operations"]
            report(spark, str(out))
            return counts.counted

        spark.range(1).count()
        yield once


def main(settings: dict[str, Any]) -> dict[str, float]:
    """Return wall and CPU seconds of the start, then of each run in the same session, each into its own folder."""
    found: dict[str, float] = {}
    wall, cpu = settings["begun"], 0.0

    def mark(name: str) -> None:
        nonlocal wall, cpu
        now, used = time.monotonic(), everything.cpu()
        found.update({f"{name}_wall": now - wall, f"{name}_cpu": used - cpu})
        wall, cpu = now, used

    out = Path(settings["out"])
    with Tree() as everything, pipeline(settings["cores"], settings["memory"]) as once:
        mark("start")
        for name in settings["times"]:
            rows = once(Path(settings["journal"]), out / name)
            mark(name)
            if rows != settings["rows"]:
                raise RuntimeError(f"{settings['rows']} rows went in, {rows} came out")
        peaks, forgotten = peaks_of_tree(), everything.forgotten()
    return found | {"forgotten_cpu": forgotten} | {"peak_mb": peaks["all"], "java_mb": peaks["java"]}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
