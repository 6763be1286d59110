"""python benchmarks/bench_requests.py --competitor ours --workload many --rate 100000: measure one point of a plot.

Plays one trace to one competitor in this process, and prints a line of JSON. run.py measures all points.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
from array import array
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.metadata import version
from math import inf, isinf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from buses.member import FORM, memory
from peers.base import Peer
from workload.driver import Collector, Driver
from workload.requests import as_requests
from workload.traces import SCHEMA, trace_of

import aiopurgatory
from aiopurgatory.pipeline.model import WORKLOADS

COMPETITORS = {
    "ours": ("ours", "Ours"),
    "awaited": ("ours", "OursAwaited"),
    "old": ("old", "Old"),
    "futures": ("futures", "FuturePerRequest"),
    "events": ("events", "EventPerKey"),
    "ray": ("events", "RayShape"),
}


async def metrics(_: AsyncExitStack) -> aiopurgatory.Observer:
    from aiopurgatory.metrics import Metrics

    return Metrics()


async def journal(observing: AsyncExitStack) -> aiopurgatory.Observer:
    from aiopurgatory.journal import Journal

    folder = observing.enter_context(TemporaryDirectory())
    return await observing.enter_async_context(Journal(folder))


OBSERVERS = {"metrics": metrics, "journal": journal}
#: The rate of "as quick as it can": more than any competitor reaches.
UNTHROTTLED = 5e6

Report = dict[str, Any]


def percentile(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def load(args: argparse.Namespace) -> tuple[Any, array[float]]:
    rate = UNTHROTTLED if isinf(args.rate) else args.rate
    table = trace_of(WORKLOADS[args.workload], args.count, seed=args.seed, rate=rate)
    return as_requests(table), array("d", (table[SCHEMA.names[0]].to_numpy() / 1e6).tolist())


async def park_others(peer: Peer, number: int) -> None:
    for i in range(number):
        peer.request(((i, 0), (i, 1), (i, 2)), 600.0, 0.0, inf, b"")
    await asyncio.sleep(0.1)


def prepare(args: argparse.Namespace) -> float:
    """Set up the collector. Returns: the bytes of memory that are used."""
    gc.collect()
    if args.gc == "freeze":
        gc.freeze()
    elif args.gc == "raised":
        gc.set_threshold(50_000, 20, 100)
    elif args.gc == "off":
        gc.disable()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    return memory()


async def play(args: argparse.Namespace, requests: Any, arrivals: array[float]) -> Report:
    module, name = COMPETITORS[args.competitor]
    async with AsyncExitStack() as observing:
        watchers = {"observers": [await OBSERVERS[each](observing) for each in args.observe]} if args.observe else {}
        peer: Peer = getattr(import_module(f"peers.{module}"), name)(**dict(args.set), **watchers)
        return await play_to(peer, args, requests, arrivals)


async def play_to(peer: Peer, args: argparse.Namespace, requests: Any, arrivals: array[float]) -> Report:
    await peer.start()
    gc.freeze()  # the trace is the driver's
    await park_others(peer, args.others)
    base = prepare(args)
    driver = Driver(peer, requests, arrivals, args.give_up * max(arrivals[-1], 0.5))
    collector = Collector()
    begin = process_time()
    await driver.run()
    cpu = process_time() - begin
    collector.close()
    late = sorted(peer.tally.lateness)
    report = {
        "requests": driver.made,
        "completed": peer.tally.completed,
        "expired": len(late),
        "achieved_per_second": driver.rate,
        "cpu_seconds_per_million": cpu / driver.made * 1e6,
        "gc_seconds_per_million": collector.seconds / driver.made * 1e6,
        "gc_passes": collector.passes,
        "gc_longest_ms": collector.longest * 1e3,
        **{f"late_{name}_ms": percentile(late, share) * 1e3 for name, share in (("p50", 0.5), ("p99", 0.99))},
        "late_max_ms": late[-1] * 1e3 if late else 0.0,
        "longest_turn_ms": driver.longest_turn * 1e3,
        "peak_pending": driver.peak_pending - args.others,
        "peak_mb": (memory("VmHWM") - base) / (1 << 20),
    }
    await peer.stop()
    return report


def setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value) if "." in value else int(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--competitor", choices=COMPETITORS, default="ours")
    parser.add_argument(
        "--set",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the competitor; may be repeated",
    )
    parser.add_argument("--workload", choices=WORKLOADS, default="few")
    parser.add_argument("--rate", type=float, default=100_000, help="requests per second; inf: as fast as possible")
    parser.add_argument("--count", type=int, default=1_000_000, help="requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--observe", choices=OBSERVERS, action="append", default=[], help="an observer to install (ours only)"
    )
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="uvloop")
    parser.add_argument("--gc", choices=["default", "raised", "freeze", "off"], default="default")
    parser.add_argument("--others", type=int, default=0, help="requests parked beforehand, which nothing ends")
    parser.add_argument("--give-up", type=float, default=1.5, help="stop after this multiple of the trace's length")
    args = parser.parse_args()
    loop = asyncio.new_event_loop()
    versions = {"Python": platform.python_version()}
    if args.loop == "uvloop":
        import uvloop

        loop = uvloop.new_event_loop()
        versions["uvloop"] = version("uvloop")
    report = loop.run_until_complete(play(args, *load(args)))
    print(json.dumps({**report, "form": FORM, "versions": versions}), flush=True)
    os._exit(0)  # a million parked objects are not worth an orderly end


if __name__ == "__main__":
    main()
