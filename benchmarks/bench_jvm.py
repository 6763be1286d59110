"""python benchmarks/bench_jvm.py --kafka ../kafka --jars build/clients/jars: our operations beside Kafka's own classes.

Kafka's classes are compiled from its sources (version 4, or the main branch of December 2024), which are not ours to
copy: ``server-common/src/main/java`` in *--kafka*. ``make test-broker`` fetches its client's jars. Needs
Java 17. PYTHONPATH chooses the form: build/compiled, or src.

Each row is a process of its own, warmed up; both sides take turns. The JVM runs with the options of Kafka's brokers
(G1, 20 ms) and a heap of 2 GB, and then with its Serial collector. Figures are CPU time: of the JVM's thread, and in
brackets of its process, which has the collector and the reaper, a thread of Kafka.

Prints Markdown: medians of the rounds in ns an operation, and how many times as long ours take.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import bench_micro as micro
from bench_timers import cancel_in_timer
from buses.member import FORM
from rich.console import Console
from rich.progress import track

HERE = Path(__file__).resolve().parent
DRIVER = "org.apache.kafka.server.util.timer.Driver"
HEAP = ["-server", "-Xms2g", "-Xmx2g"]
COLLECTORS = {
    "G1": ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"],
    "Serial": ["-XX:+UseSerialGC"],
}
OTHERS = micro.OTHERS
#: A row, the loop of ours, and the mode of the driver.
ROWS: dict[str, tuple[Callable[[int], float], str]] = {
    "1 key, timeout to watch()": (lambda loops: micro.watch_with_timeout(loops, 1, OTHERS), "watch1"),
    "1 key, own constructor": (lambda loops: micro.watch_and_complete(loops, 1, OTHERS, micro.Constructed), "watch1"),
    "3 keys, timeout to watch()": (lambda loops: micro.watch_with_timeout(loops, 3, OTHERS), "watch3"),
    "3 keys, own constructor": (lambda loops: micro.watch_and_complete(loops, 3, OTHERS, micro.Constructed), "watch3"),
    "check, nobody waits": (lambda loops: micro.check_nobody(loops, OTHERS), "check"),
    "timer: add + cancel": (lambda loops: cancel_in_timer(loops, "ours", OTHERS, 1), "timer"),
    "the same, its bare wheel": (lambda loops: cancel_in_timer(loops, "ours", OTHERS, 1), "wheel"),
}


def measure_ours(row: str) -> None:
    """Print the ns of an operation. Runs for about two seconds."""
    loop = ROWS[row][0]
    loop(20)
    loops = max(int(20 / loop(20)), 20)
    print(loop(loops) / loops / micro.BLOCK * 1e9)


def ours(row: str) -> float:
    command = [sys.executable, __file__, "--ours", row]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compile_driver(sources: str, jars: str, folder: str) -> None:
    path = os.pathsep.join([str(HERE / "jvm"), os.path.join(sources, "server-common/src/main/java")])
    options = ["-nowarn", "-implicit:class", "-proc:none", "-cp", jars, "-sourcepath", path, "-d", folder]
    subprocess.run(["javac", *options, str(HERE / "jvm" / "Driver.java")], check=True)


def theirs(row: str, collector: str, classes: str, seconds: float) -> list[float]:
    """Return the ns of an operation: of the thread, and of the process."""
    times = [str(4 * seconds), str(seconds)]
    command = ["java", *HEAP, *COLLECTORS[collector], "-cp", classes, DRIVER, ROWS[row][1], *times]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return [float(each) for each in output.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", metavar="DIR", help="a checkout of Kafka's sources")
    parser.add_argument("--jars", metavar="DIR", help="the jars of kafka-clients and slf4j-api")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time to measure; four times as much to warm up")
    parser.add_argument("--ours", choices=ROWS, help=argparse.SUPPRESS)  # in a child process
    args = parser.parse_args()
    if args.ours:
        return measure_ours(args.ours)
    if not args.kafka or not args.jars:
        parser.error("--kafka and --jars are needed: see above")
    print(f"The {FORM} form of ours\n")
    print("|  | ours, ns | G1, ns | ours / G1 | Serial, ns | ours / Serial |\n| --- | --- | --- | --- | --- | --- |")
    with TemporaryDirectory() as folder:
        jars = os.path.join(os.path.abspath(args.jars), "*")
        compile_driver(args.kafka, jars, folder)
        classes = os.pathsep.join([folder, jars])
        for row in track(ROWS, "rows", console=Console(stderr=True)):
            found = [
                [ours(row), *(value for name in COLLECTORS for value in theirs(row, name, classes, args.seconds))]
                for _ in range(args.rounds)
            ]
            mine, *other = (median(values) for values in zip(*found, strict=True))
            cells = [f"{row} | {mine:.0f}"]
            for thread, process in (other[:2], other[2:]):
                cells += [f"{thread:.0f} ({process:.0f})", f"{mine / thread:.2f} ({mine / process:.2f})"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return None


if __name__ == "__main__":
    main()
