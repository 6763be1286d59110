"""python benchmarks/measurements.py requests --competitor ours --loop uvloop: one measurement, as run.py asks for it.

Prints one line of JSON: the CPU time per operation in ns (or bytes) of each series, and how many operations completed.
Competitors that cost little alternate within one process, block by block; the others have a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import tracemalloc
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from importlib.metadata import version
from itertools import count, islice
from time import process_time

import aiopurgatory
from aiopurgatory import DelayedOperation, Purgatory
from aiopurgatory.timer import Timer, TimerTask

#: Timers or operations per block; between two blocks the loop has a turn.
BLOCK = 1_000
#: Requests that come, and are then answered, in one turn of the loop.
BATCH = 100

Values = dict[str, float]
Block = Callable[[], Awaitable[None]]

ready = False
answers: dict[Hashable, int] = {}


class Plain(DelayedOperation[int]):
    """An operation without attributes of its own."""

    __slots__ = ()

    def try_complete(self) -> bool:
        return ready and self.force_complete()

    def on_complete(self) -> int:
        return 1


class Request(DelayedOperation[int]):
    """An operation that knows what it waits for."""

    __slots__ = ("key",)

    def __init__(self, key: Hashable, timeout: float) -> None:
        super().__init__(timeout)
        self.key = key

    def try_complete(self) -> bool:
        return self.key in answers and self.force_complete()

    def on_complete(self) -> int:
        return answers.pop(self.key)


async def alternate(series: dict[str, Block], blocks: int) -> Values:
    """CPU ns per operation of each series, one block of each in turn; the first blocks are a warm-up."""
    spent = dict.fromkeys(series, 0.0)
    for block in range(blocks + 1):
        for name, run in series.items():
            begin = process_time()
            await run()
            if block > 0:
                spent[name] += process_time() - begin
    return {name: seconds * 1e9 / (blocks * BLOCK) for name, seconds in spent.items()}


def call_later(delays: list[float]) -> Block:
    """The loop's own timers. Its turn counts: in it the loop drops those that were cancelled."""
    loop = asyncio.get_running_loop()

    async def run() -> None:
        for delay in delays:
            loop.call_later(delay, print).cancel()
        await asyncio.sleep(0)

    return run


def add_and_cancel(pending: int) -> Block:
    """Our timer, with *pending* others in it: tick 1 ms, timeouts of 30 to 60 s, in nanoseconds as in a purgatory."""

    def make() -> TimerTask:
        return TimerTask(random.randrange(30_000_000_000, 60_000_000_000))

    timer = Timer(1_000_000)
    for _ in range(pending):
        timer.add(make())
    tasks = [make() for _ in range(BLOCK)]

    async def run() -> None:
        for task in tasks:
            timer.add(task)
            timer.cancel(task)

    return run


async def timer(args: argparse.Namespace) -> Values:
    delays = [random.uniform(30, 60) for _ in range(100_000 // args.scale)]
    loop = asyncio.get_running_loop()
    pending = [loop.call_later(delay, print) for delay in delays]
    series = {"ours": add_and_cancel(len(pending)), "call_later": call_later(random.choices(delays, k=BLOCK))}
    return await alternate(series, 100 // args.scale)


async def scale(args: argparse.Namespace) -> Values:
    series = {"1k": add_and_cancel(1_000 // args.scale), "1M": add_and_cancel(1_000_000 // args.scale)}
    return await alternate(series, 500 // args.scale)


async def operations(args: argparse.Namespace) -> Values:
    purgatory = await started()
    for i in range(100_000 // args.scale):
        purgatory.watch(Plain(random.uniform(30, 60)), (i,))

    def watch_and_check(keys_each: int) -> Block:
        watched = [tuple(f"key {i} {k}" for k in range(keys_each)) for i in range(BLOCK)]

        async def run() -> None:
            global ready
            for keys in watched:
                purgatory.watch(Plain(30.0), keys)
                ready = True
                purgatory.check_and_complete(keys[0])
                ready = False
            await asyncio.sleep(0)

        return run

    async def check() -> None:
        for _ in range(BLOCK):
            purgatory.check_and_complete("nobody waits here")

    series = {"call_later": call_later([30.0] * BLOCK)}
    series |= {"1 key": watch_and_check(1), "3 keys": watch_and_check(3), "check": check}
    values = await alternate(series, 100 // args.scale)
    return values | {"completed": purgatory.statistics().completed}


async def memory(args: argparse.Namespace) -> Values:
    """Bytes that a purgatory holds per pending operation, without the keys and the tuples they come in."""
    values: Values = {}
    for keys in (1, 3):
        for make, more in ((Plain, ""), (partial(Request, ""), ", one slot more")):
            watched = [tuple((i, k) for k in range(keys)) for i in range(100_000 // args.scale)]
            purgatory = await started()
            gc.collect()
            tracemalloc.start()
            for given in watched:
                purgatory.watch(make(random.uniform(30, 60)), given)
            values[f"{keys} key{'s'[: keys - 1]}{more}"] = tracemalloc.get_traced_memory()[0] / len(watched)
            tracemalloc.stop()
            purgatory.close()
    return values


async def started() -> Purgatory:
    purgatory = Purgatory()
    await purgatory.start()
    return purgatory


class Ours:
    """Requests parked in a purgatory."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory

    async def wait(self, key: Hashable, timeout: float) -> int:
        return await self.purgatory.watch(Request(key, timeout), (key,))

    def answer(self, key: Hashable) -> None:
        answers[key] = 1
        self.purgatory.check_and_complete(key)


class Peer:
    """What asyncio users write: a Future per request in a dict of sets, asyncio.timeout(), clean-up in finally."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[Hashable, set[asyncio.Future[int]]] = {}

    async def wait(self, key: Hashable, timeout: float) -> int:
        future: asyncio.Future[int] = self.loop.create_future()
        self.waiting.setdefault(key, set()).add(future)
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            futures = self.waiting[key]
            futures.discard(future)
            if not futures:
                del self.waiting[key]

    def answer(self, key: Hashable) -> None:
        for future in self.waiting.get(key, ()):
            if not future.done():
                future.set_result(1)


async def requests(args: argparse.Namespace) -> Values:
    if args.collector == "threshold":
        gc.set_threshold(50_000, 20, 100)
    server = Ours(await started()) if args.competitor == "ours" else Peer()
    timeouts = [random.uniform(30, 60) for _ in range(BLOCK)]
    keys = count()
    parked: deque[tuple[int, asyncio.Task[int]]] = deque()
    answered = parked.popleft if args.answer == "oldest" else parked.pop

    def park(number: int) -> None:
        for key in islice(keys, number):
            parked.append((key, asyncio.create_task(server.wait(key, timeouts[key % BLOCK]))))

    async def serve(number: int) -> int:
        completed = 0
        for _ in range(0, number, BATCH):
            park(BATCH)
            await asyncio.sleep(0)
            batch = [answered() for _ in range(BATCH)]
            for key, _ in batch:
                server.answer(key)
            await asyncio.sleep(0)
            completed += sum(task.result() for _, task in batch)
        return completed

    park(args.others // args.scale)
    await asyncio.sleep(0)
    gc.collect()  # whether the next one falls into the measurement is not left to chance
    if args.collector == "freeze":
        gc.freeze()
    number = args.requests // args.scale
    await serve(number // 10)
    begin = process_time()
    completed = await serve(number)
    spent = process_time() - begin
    return {args.competitor: spent * 1e9 / number, "completed": completed}


MEASUREMENTS = {measure.__name__: measure for measure in (timer, scale, operations, memory, requests)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument("--competitor", choices=["ours", "peer"], default="ours")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--others", type=int, default=0)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--answer", choices=["newest", "oldest"], default="newest")
    parser.add_argument("--collector", choices=["default", "threshold", "freeze"], default="default")
    parser.add_argument("--scale", type=int, default=1, help="divide all sizes by this")
    args = parser.parse_args()
    versions = {"Python": platform.python_version(), "aiopurgatory": aiopurgatory.__version__}
    loop = asyncio.new_event_loop()
    if args.loop == "uvloop":
        import uvloop

        loop = uvloop.new_event_loop()
        versions["uvloop"] = version("uvloop")
    values = loop.run_until_complete(MEASUREMENTS[args.measurement](args))
    form = "compiled" if aiopurgatory.COMPILED else "interpreted"
    print(json.dumps({"values": values, "loop": args.loop, "form": form, "versions": versions}), flush=True)
    os._exit(0)  # 100,000 parked tasks are not worth an orderly end


if __name__ == "__main__":
    main()
