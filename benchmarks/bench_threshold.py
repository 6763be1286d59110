"""python benchmarks/bench_threshold.py: time 1k waiters and 1k advances, 100 times, against 100k of both, once.

Prints a line of JSON per size. The last has the ratio: 1 if all is linear, 100 if each advance tries every waiter.
``--way keyed`` does that: all share one watch key, and each advance checks it. CPU time; each round is a process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from statistics import median
from time import process_time
from typing import Any

from buses.member import FORM, calm_the_collector, loop_factory
from rounds import child
from tables.machine import machine, versions

from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.operations import Thresholds

TIMEOUT = 30.0


class KeyedWatermark:
    """The obvious way: one key, and a check of it per advance."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.value = 0

    def watch(self, offset: int, timeout: float) -> KeyedWait:
        return self.purgatory.watch(KeyedWait(self, offset, timeout), ["orders"])

    async def reached(self, offset: int, timeout: float) -> int:
        return await self.watch(offset, timeout)

    def advance(self, value: int) -> int:
        self.value = value
        return self.purgatory.check_and_complete("orders")


class KeyedWait(DelayedOperation[int]):
    __slots__ = ("offset", "watermark")

    def __init__(self, watermark: KeyedWatermark, offset: int, timeout: float) -> None:
        super().__init__(timeout)
        self.watermark = watermark
        self.offset = offset

    def try_complete(self) -> bool:
        return self.watermark.value >= self.offset and self.force_complete()

    def on_complete(self) -> int:
        return self.watermark.value


WAYS: dict[str, Callable[[Purgatory], Any]] = {
    "threshold": lambda purgatory: Thresholds(purgatory, "orders"),
    "keyed": KeyedWatermark,
}


async def play(way: str, waiters: int, repeats: int, awaited: bool) -> float:
    """Returns: CPU seconds for *waiters* waiters and as many advances, all *repeats* times."""
    async with AsyncExitStack() as stack:
        # made beforehand: a purgatory or a partition is not made per wait
        everyone = [WAYS[way](await stack.enter_async_context(Purgatory("produce"))) for _ in range(repeats)]
        gc.collect()
        begin = process_time()
        for watermark in everyone:
            if awaited:
                await advance_past_tasks(watermark, waiters)
            else:
                advance_past(watermark, waiters)
        return process_time() - begin


def advance_past(watermark: Any, waiters: int) -> None:
    for offset in range(1, waiters + 1):
        watermark.watch(offset, timeout=TIMEOUT)
    ended = sum(watermark.advance(value) for value in range(1, waiters + 1))
    assert ended == waiters


async def advance_past_tasks(watermark: Any, waiters: int) -> None:
    tasks = [asyncio.create_task(watermark.reached(offset, timeout=TIMEOUT)) for offset in range(1, waiters + 1)]
    await asyncio.sleep(0)
    for value in range(1, waiters + 1):
        watermark.advance(value)
        if value % 100 == 0:
            await asyncio.sleep(0)  # a server answers some, and goes on
    for offset, task in enumerate(tasks, 1):
        assert await task >= offset


def measure(args: argparse.Namespace, waiters: int, repeats: int) -> dict[str, Any]:
    """Run one process per round, so that none inherits a heap or the collector's thresholds."""
    command = [__file__, "--way", args.way, "--loop", args.loop, "--gc", args.gc]
    command += ["--awaited"] * args.awaited + ["--one", str(waiters), str(repeats)]
    seconds = [child(command) for _ in range(args.rounds)]
    each = [value / (waiters * repeats) * 1e6 for value in seconds]
    line = {"way": args.way, "awaited": args.awaited, "gc": args.gc, "waiters": waiters, "repeats": repeats}
    line |= {"cpu_us_each": median(each), "least_us": min(each), "most_us": max(each), "rounds": args.rounds}
    print(json.dumps(line), flush=True)
    return line


def one(args: argparse.Namespace) -> None:
    loop = loop_factory(args.loop)()
    if args.gc == "off":
        gc.disable()
    elif args.gc == "raised":
        calm_the_collector()
    waiters, repeats = args.one
    print(loop.run_until_complete(play(args.way, waiters, repeats, args.awaited)), flush=True)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=WAYS, default="threshold")
    parser.add_argument("--awaited", action="store_true", help="each waiter is a task")
    parser.add_argument("--few", type=int, default=1_000, help="waiters in the small size")
    parser.add_argument("--many", type=int, default=100_000, help="waiters in the large size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument(
        "--gc", choices=["default", "raised", "off"], default="default", help="raised: as the README says"
    )
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args)
        return
    few = measure(args, args.few, args.many // args.few)
    many = measure(args, args.many, 1)
    found = {**machine(), "versions": versions(["aiopurgatory", "uvloop"]), "form": FORM}
    print(json.dumps({"ratio": many["cpu_us_each"] / few["cpu_us_each"], **found}))


if __name__ == "__main__":
    main()
