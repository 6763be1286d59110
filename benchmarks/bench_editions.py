"""python benchmarks/bench_editions.py --before DIR --after DIR: compare two builds, to see the cost of a change.

DIR is a folder that holds the package, such as build/compiled: copy it before you change the code. The builds take
turns, in processes of their own. Figures are CPU time, with 100,000 other operations pending, on uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from itertools import count
from statistics import median
from time import process_time

OTHERS = 100_000
BATCH = 1_000
BATCHES = 60


def timed(batch: Callable[[], object]) -> float:
    """Return ns per item, the median of many batches."""
    times = []
    for _ in range(BATCHES):
        begin = process_time()
        batch()
        times.append((process_time() - begin) * 1e9 / BATCH)
    return median(times)


def measure_timer() -> float:
    from aiopurgatory.timer import Timer, TimerTask

    timer = Timer(1_000_000, 20)
    kept = [TimerTask(3_000_000_000 + number * 30_000) for number in range(OTHERS)]
    for other in kept:
        timer.add(other)
    tasks = [TimerTask(30_000_000_000 + number) for number in range(BATCH)]
    gc.freeze()

    def batch() -> None:
        add, cancel = timer.add, timer.cancel
        for task in tasks:
            add(task)
            cancel(task)

    return timed(batch)


async def measure_purgatory() -> dict[str, float]:
    from aiopurgatory import DelayedOperation, Purgatory

    ready = False

    class Plain(DelayedOperation[None]):
        __slots__ = ()

        def try_complete(self) -> bool:
            return ready and self.force_complete()

    async with Purgatory() as purgatory:
        for number in range(OTHERS):
            purgatory.watch(Plain(3000.0 + number / 100), (number,))
        await asyncio.sleep(0)
        gc.collect()
        gc.freeze()

        def answer(keys_each: int) -> Callable[[], None]:
            watched = [tuple(f"{i} {k}" for k in range(keys_each)) for i in range(BATCH)]

            def batch() -> None:
                nonlocal ready
                watch, check = purgatory.watch, purgatory.check_and_complete
                for keys in watched:
                    watch(Plain(30.0), keys)
                    ready = True
                    check(keys[0])
                    ready = False

            return batch

        found = {f"watch + check, {n} key{'s' * (n > 1)}": timed(answer(n)) for n in (1, 3)}

        def nobody() -> None:
            check = purgatory.check_and_complete
            for _ in range(BATCH):
                check("nobody waits here")

        found["check, nobody waits"] = timed(nobody)

        keys = [(f"{i}",) for i in range(BATCH)]

        async def handle(key: tuple[str]) -> None:
            await purgatory.watch(Plain(30.0), key)

        times = []
        for _ in range(BATCHES):
            begin = process_time()
            tasks = [asyncio.create_task(handle(key)) for key in keys]
            await asyncio.sleep(0)
            ready = True
            for key in keys:
                purgatory.check_and_complete(key[0])
            ready = False
            await asyncio.sleep(0)
            assert all(task.done() for task in tasks)
            times.append((process_time() - begin) * 1e9 / BATCH)
        found["watch + await + check in a task"] = median(times)
        del tasks

        numbers = count(OTHERS)
        parked = [(next(numbers),) for _ in range(20_000)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for each in parked:
            purgatory.watch(Plain(3000.0), each)
        found["bytes per pending operation, 1 key"] = (tracemalloc.get_traced_memory()[0] - before) / len(parked)
        tracemalloc.stop()
    return found


def measure() -> None:
    import uvloop

    import aiopurgatory

    found = {"timer add + cancel": measure_timer()}
    gc.unfreeze()
    found |= uvloop.new_event_loop().run_until_complete(measure_purgatory())
    print(json.dumps({"compiled": aiopurgatory.COMPILED, **found}))


def run(build: str) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": build, "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--measure"]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(text)
    assert found.pop("compiled"), f"{build} holds no compiled form"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", help="folder of the old build")
    parser.add_argument("--after", help="folder of the new build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure()
        return
    rounds = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", end="\r", file=sys.stderr, flush=True)
        rounds.append((run(args.before), run(args.after)))
    print(f"Python {sys.version.split()[0]}, {args.rounds} rounds, medians; share: of pairs, median (least to most)")
    for name in rounds[0][1]:
        before = [one.get(name, float("nan")) for one, _ in rounds]
        after = [other[name] for _, other in rounds]
        shares = [b / a for a, b in zip(before, after, strict=True)]
        share = f"{median(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"
        print(f"{name:45} {median(before):10.3f} {median(after):10.3f}   {share}")


if __name__ == "__main__":
    main()
