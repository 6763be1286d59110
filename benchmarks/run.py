"""python benchmarks/run.py --compiled build/compiled --peers build/peers: run every measurement, several times.

Each measurement is a process of its own. They take turns, round by round. Their output becomes results.jsonl, with a
line per measurement and round, and from it RESULTS.md. Choose with --only and --smoke.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO
from uuid import uuid4

import jobs
import pyperf  # type: ignore[import-untyped]
from jobs import Job
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tables import sections
from tables.machine import machine
from tables.results import is_sustained, read

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"

Line = dict[str, Any]


@dataclass
class Bench:
    """Runs jobs and keeps their output."""

    compiled: Path
    peers: Path
    scratch: Path
    progress: Progress
    output: TextIO
    size: str

    def run(self, job: Job, number: int) -> list[Line]:
        """Return the lines that *job* printed."""
        library = self.compiled if job.form == "compiled" else SOURCES
        scripts = self.peers if job.form == "compiled" and job.script in jobs.WITH_OLD else HERE
        command = [sys.executable, str(scripts / job.script), *job.arguments]
        if job.on_pyperf:
            command += ["--quiet", "-o", str(self.scratch / f"{uuid4()}.json")]
        # numpy would keep a core busy with threads that have nothing to do
        environment = {**os.environ, "PYTHONPATH": str(library), "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        child = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=scripts, timeout=1800)
        if child.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{child.stderr}")
        lines = child.stdout.splitlines()
        printed = from_pyperf(Path(command[-1])) if job.on_pyperf else [json.loads(line) for line in lines]
        found = [{"table": job.table, **job.labels, **line, "size": self.size, "round": number} for line in printed]
        expected = "interpreted" if library == SOURCES else "compiled"
        for line in found:
            if line.get("form", expected) != expected:
                sys.exit(f"{' '.join(command)} ran the {line['form']} form")
        for line in found:
            self.write(line)
        return found

    def write(self, line: Line) -> None:
        self.output.write(json.dumps(line) + "\n")
        self.output.flush()

    def run_series(self, series: list[Job], number: int) -> Iterator[Job]:
        """Run *series* in order of rate. Skip the rest after a rate that was too high."""
        failed = False
        for job in series:
            if job.always or not failed:
                last = self.run(job, number)[-1]
                failed = failed or (job.rated and not is_sustained(last))
            yield job


def from_pyperf(path: Path) -> list[Line]:
    """Return the median of each benchmark of this process, in ns."""
    suite = pyperf.BenchmarkSuite.load(str(path))
    labels = ("operation", "design", "pending", "form")
    return [
        {**{label: each.get_metadata()[label] for label in labels}, "ns": each.median() * 1e9}
        for each in suite.get_benchmarks()
    ]


def run_all(bench: Bench, chosen: list[list[Job]], rounds: int) -> None:
    task = bench.progress.add_task("", total=rounds * sum(map(len, chosen)))
    for number in range(rounds):
        for series in chosen:
            bench.progress.update(task, description=f"{series[0].table}: {series[0].title}"[:50].ljust(50))
            for _ in bench.run_series(series, number):
                bench.progress.advance(task)


def run_at_once(bench: Bench, chosen: list[list[Job]]) -> None:
    """Run as many jobs at a time as there are cores, when nothing is measured."""
    flat = [job for series in chosen for job in series]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in bench.progress.track(pool.map(lambda job: bench.run(job, 0), flat), total=len(flat)):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", type=Path, default=SOURCES, metavar="DIR", help="folder of the compiled library")
    parser.add_argument("--peers", type=Path, default=HERE, metavar="DIR", help="compiled copy of this folder")
    parser.add_argument("--only", choices=jobs.TABLES, action="append", help="only this table; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once, to check that everything runs")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build/benchmarks", metavar="DIR")
    args = parser.parse_args()

    name = "smoke" if args.smoke else "normal"
    chosen = [series for series in jobs.series(jobs.SIZES[name]) if not args.only or series[0].table in args.only]
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    console = Console()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "results.jsonl"
    with Progress(*columns, console=console) as progress, TemporaryDirectory() as scratch, path.open("w") as output:
        bench = Bench(args.compiled.resolve(), args.peers.resolve(), Path(scratch), progress, output, name)
        bench.write(machine())
        try:
            if args.smoke:
                run_at_once(bench, chosen)
            else:
                run_all(bench, chosen, args.rounds)
        except KeyboardInterrupt:
            sys.exit(f"Stopped. The measurements are in {path}; write_results.py makes tables of them.")
    found, page = read([path]), HERE / "RESULTS.md"
    text = sections.measured(page.read_text(), found)
    (args.output / page.name).write_text(text)
    console.print("Everything runs." if args.smoke else text, markup=False)
    if not (args.smoke or args.only):
        page.write_text(text)


if __name__ == "__main__":
    main()
