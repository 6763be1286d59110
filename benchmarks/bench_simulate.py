"""python benchmarks/bench_simulate.py: measure the rates of generate and simulate, a line of JSON for each.

The rate of a simulation is compared with that of the benchmark for the same setting, both per second of CPU time. The
benchmark runs once with the simulated trace, and once overloaded, which saves most wake-ups. Set
PYTHONPATH=build/compiled to measure the compiled form.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from workload.traces import trace_of

import aiopurgatory
from aiopurgatory.pipeline.generate import SCHEMA, trace
from aiopurgatory.pipeline.model import WORKLOADS
from aiopurgatory.pipeline.session import session
from aiopurgatory.pipeline.simulate import grid, replays
from aiopurgatory.replay.replay import replay
from aiopurgatory.replay.settings import Setting

HERE = Path(__file__).parent
FORM = "compiled" if aiopurgatory.COMPILED else "interpreted"
#: The setting, and its name in bench_requests.py.
PAIRS = {
    "ours": (Setting(), ["--competitor", "ours"]),
    "ours, purge 1000": (Setting(purge_interval=1000), ["--competitor", "ours", "--set", "purge_interval=1000"]),
}

Line = dict[str, Any]


def rates(args: argparse.Namespace) -> Iterator[Line]:
    """Return operations per second of CPU time of a replay and of the benchmark, measured in turns."""
    for workload, (label, (setting, options)) in ((workload, pair) for workload in WORKLOADS for pair in PAIRS.items()):
        table = trace_of(WORKLOADS[workload], args.rows)
        ours, theirs, unthrottled = [], [], []
        for _ in range(args.rounds):
            begin = process_time()
            replay(table, setting)
            ours.append(args.rows / (process_time() - begin))
            told = [*options, "--workload", workload, "--count", str(args.rows)]
            theirs.append(benchmark([*told, "--rate", "100000"]))
            unthrottled.append(benchmark([*told, "--rate", "inf"]))
        yield {
            "what": "simulate / benchmark",
            "workload": workload,
            "setting": label,
            "form": FORM,
            "simulated_per_second": round(median(ours)),
            "benchmark_per_second": round(median(theirs)),
            "unthrottled_per_second": round(median(unthrottled)),
            "ratio": round(median(map(truediv, ours, theirs)), 3),
            "ratio_to_unthrottled": round(median(map(truediv, ours, unthrottled)), 3),
        }


def benchmark(options: list[str]) -> float:
    """Return requests per second of CPU time."""
    command = [sys.executable, str(HERE / "bench_requests.py"), *options, "--give-up", "inf"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    report = json.loads(printed)
    if report["form"] != FORM:
        sys.exit(f"the benchmark ran the {report['form']} form")
    return float(1e6 / report["cpu_seconds_per_million"])


def generated(args: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Return rows per second that generate makes, on two cores."""
    with session("local[2]", large=True) as spark:
        made = trace(spark.range(args.generate), [WORKLOADS["few"]])
        write = partial(made.write.mode("overwrite").parquet, str(folder / "trace"))
        seconds = median(timed(write) for _ in range(args.rounds))
    yield {"what": "generate", "rows": args.generate, "rows_per_second": args.generate / seconds}


def scaling(args: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Return the ratio of simulate's times on two cores and on one."""
    settings = grid([1.0, 10.0], [20, 64], [0, 1000])
    took: dict[int, float] = {}
    for cores in (1, 2):
        with session(f"local[{cores}]") as spark:
            trace(spark.range(args.rows), [WORKLOADS["many"]]).write.mode("overwrite").parquet(str(folder / "many"))
            found = replays(spark.read.schema(SCHEMA).parquet(str(folder / "many")), settings)
            found.collect()
            took[cores] = median(timed(found.collect) for _ in range(args.rounds))
    yield {
        "what": "simulate, local[2] / local[1]",
        "form": FORM,
        "seconds": {f"local[{cores}]": round(seconds, 2) for cores, seconds in took.items()},
        "ratio": round(took[2] / took[1], 3),
        "operations_per_second": round(args.rows * len(settings) / took[2]),
    }


def timed(step: Callable[[], object]) -> float:
    begin = perf_counter()
    step()
    return perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000, help="requests in the traces to replay")
    parser.add_argument("--generate", type=int, default=5_000_000, help="rows to generate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["rates", "generate", "scaling"])
    args = parser.parse_args()
    with TemporaryDirectory() as scratch:
        parts: dict[str, Callable[[], Iterator[Line]]] = {
            "rates": lambda: rates(args),
            "generate": lambda: generated(args, Path(scratch)),
            "scaling": lambda: scaling(args, Path(scratch)),
        }
        for name, part in parts.items():
            if args.only in (None, name):
                for line in part():
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
