"""python benchmarks/bench_pipeline.py --rounds 3 --json build/pipeline.json: measure the pipeline.

    session   the start of a session with a trivial job; then ingest + report twice in that session, *first* and
              *again*, each into an empty folder: 1M and 10M rows of a day in files of 250,000 rows
    process   one process from start to end, with ingest + report once
    files     2,000 files of 10 rows, then 10 files of the same rows, as in *session*
    command   ``aiopurgatory pipeline run``, from ingest to advice, with the time until its first page, and then again
              with nothing new: a journal of 30,000 rows of one minute, like the demo's, and one of 2 MB
    year      ``aiopurgatory pipeline run`` on 365 days of 20,000 rows in two files; then again with one more file of
              the last day

*ours* with a heap of 1 GB and *ours, 512m* take turns, each in a process of its own on two threads. The journals were
just written, so their pages are in memory for all. CPU time is counted for the whole process tree, user and system: the
JVM, its Python workers, and everything else that is started. Before the first round each runs once, unmeasured.

Prints a line of JSON for each run, round by round, then the targets, and medians with their ranges.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

from pipelines.journals import Shape, make
from pipelines.usage import run_tree
from tables import pipelines, targets
from tables.machine import Printer
from tables.results import Results, markdown_table

Line = dict[str, Any]

HERE = Path(__file__).parent
PACKAGES = ["pyspark", "pyarrow", "numpy"]
#: Name -> the heap of its JVM.
COMPETITORS = {"ours": "1g", "ours, 512m": "512m"}
WHATS = ("session", "process", "files", "command", "year")
FILES = {"2,000 files": Shape(20_000, 10), "10 files": Shape(20_000, 2_000)}
DEMO = Shape(30_000, 3_000, span=60.0, instances=1, snapshots=1.0)
SMALL = Shape(230_000, 23_000, span=3_600.0, instances=1)
DAY = Shape(20_000, 10_000, instances=1, snapshots=600.0)
WARMING = Shape(100_000)


@dataclass
class Bench:
    folder: Path
    cores: int
    competitors: Sequence[str]
    #: The journals of the command; smaller ones for a test.
    command_journals: Sequence[Shape] = (DEMO, SMALL)
    days: int = 365

    def journal(self, name: str, shape: Shape) -> Path:
        """Return the journal of *shape*, made on first use."""
        folder = self.folder / "journals" / name.replace(",", "").replace(" ", "-")
        if not folder.exists():
            make(folder, shape)
        return folder

    def run(self, competitor: str, journal: Path, rows: int, times: Sequence[str]) -> Line:
        """Return the times of each step, and of the whole process with its exit."""
        settings = {"memory": COMPETITORS[competitor], "cores": self.cores, "times": times, "rows": rows}
        out = self.emptied("out")
        settings |= {"journal": str(journal), "out": str(out), "begun": time.monotonic()}
        ended = run_tree([sys.executable, "-m", "pipelines.worker", json.dumps(settings)], folder=HERE)
        if ended.status:
            raise RuntimeError(f"{competitor} failed with {journal}, see above")
        found: Line = json.loads(ended.output.splitlines()[-1])
        whole = {"whole_wall": ended.wall, "whole_cpu": ended.cpu + found.pop("forgotten_cpu")}
        return found | whole | {"rows": rows, "competitor": competitor}

    def emptied(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def warm(self) -> None:
        for competitor in self.competitors:
            self.run(competitor, self.journal("warming", WARMING), WARMING.rows, ["first"])

    def session(self, sizes: Sequence[int]) -> Iterator[Line]:
        for rows in sizes:
            journal = self.journal(f"{rows} rows", Shape(rows))
            for competitor in self.competitors:
                line = self.run(competitor, journal, rows, ["first", "again"])
                line |= {f"{name}_rows_s": rows / line[f"{name}_wall"] for name in ("first", "again")}
                yield {"what": "session", **line}

    def process(self, sizes: Sequence[int]) -> Iterator[Line]:
        for rows in sizes:
            for competitor in self.competitors:
                journal = self.journal(f"{rows} rows", Shape(rows))
                yield {"what": "process", **self.run(competitor, journal, rows, ["first"])}

    def files(self) -> Iterator[Line]:
        for competitor in self.competitors:
            for name, shape in FILES.items():
                line = self.run(competitor, self.journal(name, shape), shape.rows, ["first", "again"])
                yield {"what": "files", "files": name, **line}

    def command(self) -> Iterator[Line]:
        for shape in self.command_journals:
            journal, out = self.journal(f"command {shape.rows}", shape), self.emptied("out")
            size = sum(path.stat().st_size for path in journal.rglob("*.parquet"))
            first, whole = self.run_command(journal, out)
            again = self.run_command(journal, out)[1]
            # No CPU time: only Tree knows how much Spark's Python workers take.
            found = {"whole_wall": whole, "first_page_wall": first, "nothing_new_wall": again, "mb": size / 1e6}
            yield {"what": "command", "competitor": "ours", "rows": shape.rows, **found}

    def year(self) -> Iterator[Line]:
        journal, out = self.folder / "journals" / "year", self.emptied("out")
        if not journal.exists():
            for day in range(self.days):
                make(journal, replace(DAY, day=day))
        last = max(journal.glob("operations/date=*/hour=*/*.parquet"))
        aside = self.folder / last.name
        last.rename(aside)
        whole = self.run_command(journal, out)[1]
        aside.rename(last)
        one = self.run_command(journal, out)[1]
        found = {"whole_wall": whole, "one_file_wall": one, "one_file_of_whole": one / whole}
        yield {"what": "year", "competitor": "ours", "rows": self.days * DAY.rows, **found}

    def run_command(self, journal: Path, out: Path) -> tuple[float, float]:
        """Return the seconds until the first page, and until the end."""
        command = [sys.executable, "-m", "aiopurgatory", "pipeline", "run", str(journal), str(out)]
        begun = time.monotonic()
        first = nan
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.folder) as running:
            for line in running.stdout or ():
                if line.startswith("A first page"):
                    first = time.monotonic() - begun
                    break
            if running.wait():
                raise RuntimeError(f"aiopurgatory pipeline run failed with {journal}, see above")
            return first, time.monotonic() - begun


def measure(bench: Bench, args: argparse.Namespace, told: Printer) -> None:
    """Measure round by round, so that temporary disturbances of the machine affect all alike."""
    chosen = args.only or WHATS
    if set(chosen) - {"command", "year"}:
        bench.warm()
    for number in range(args.rounds):
        for what in chosen:
            of_sizes = what in ("session", "process")
            lines = getattr(bench, what)(args.rows) if of_sizes else getattr(bench, what)()
            told.lines({"round": number, "cores": bench.cores, **line} for line in lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="default: 1M and 10M")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--only", choices=WHATS, action="append", help="only this, or these")
    parser.add_argument("--competitor", choices=COMPETITORS, action="append", help="only this, or these")
    parser.add_argument("--cores", type=int, default=2, help="threads of each; default: 2")
    parser.add_argument("--folder", metavar="DIR", help="folder for journals and results; default: a temporary one")
    parser.add_argument("--compiled", metavar="DIR", help="folder of the compiled library")
    parser.add_argument("--json", metavar="FILE", help="also write the lines to this file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.compiled:
        os.environ["PYTHONPATH"] = os.path.abspath(args.compiled)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, Printer("pipelines", args.json) as told:
        told.machine(PACKAGES, [])
        measure(Bench(Path(folder), args.cores, args.competitor or list(COMPETITORS)), args, told)
    found = Results(told.found)
    print(markdown_table(targets.HEAD, targets.rows(found, pipelines.TARGETS)))
    print(pipelines.markdown(found.where(table="pipelines")))


if __name__ == "__main__":
    main()
