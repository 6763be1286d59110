"""python benchmarks/bench_growth.py: what an operation costs as the number of others, of keys, or of waiters grows.

Prints Markdown: CPU time of each operation, and of the longest loop iteration. Nobody awaits the operations. The
collector is off, but for the last table: the share of CPU time that it takes while tasks park, as it is by default, and
with the two lines that docs/figures.md gives. For the interpreted form, PYTHONPATH=src; for the other, build/compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import tracemalloc
from collections.abc import Callable, Hashable, Iterable
from time import process_time
from typing import Any

from buses.member import FORM
from rich.console import Console
from rich.progress import track

import aiopurgatory
from aiopurgatory import DelayedOperation, Purgatory

#: Operations that are measured beside the waiting ones.
SAMPLE = 2_000


class Waiter(DelayedOperation[None]):
    __slots__ = ()
    ready = False

    def try_complete(self) -> bool:
        return Waiter.ready and self.force_complete()


def fill(purgatory: Purgatory, count: int, key_of: Callable[[int], Hashable], timeout: float = 600.0) -> list[Waiter]:
    return [purgatory.watch(Waiter(timeout), (key_of(number),)) for number in range(count)]


def per_item(step: Callable[[Any], object], items: Iterable[Any]) -> float:
    """Call *step* with each of *items*. Returns: its CPU time in microseconds."""
    listed = list(items)
    begin = process_time()
    for item in listed:
        step(item)
    return (process_time() - begin) / len(listed) * 1e6


async def longest_turn(purgatory: Purgatory, begin: Callable[[Purgatory], object]) -> float:
    """Call *begin*, which ends all operations in turns. Returns: the ms of CPU time of the longest iteration."""
    longest = 0.0
    begin(purgatory)
    while purgatory.num_delayed:
        start = process_time()
        await asyncio.sleep(0)
        longest = max(longest, process_time() - start)
    return longest * 1e3


async def by_pending(count: int) -> list[float]:
    """With *count* others, each under a key of its own."""
    async with Purgatory() as purgatory:
        ops = fill(purgatory, count, int)
        sample = random.sample(ops, min(SAMPLE, count // 2))

        def watch_and_complete(number: int) -> None:
            op = purgatory.watch(Waiter(30.0), (-number - 1,))
            Waiter.ready = True
            purgatory.check_and_complete(-number - 1)
            Waiter.ready = False
            assert op.done()

        return [
            min(per_item(watch_and_complete, range(SAMPLE)) for _ in range(5)),
            per_item(lambda op: purgatory.reschedule(op, 100.0), sample),
            per_item(lambda op: op.cancel(), sample),
            per_item(lambda _: purgatory.statistics(), range(20)),
        ]


async def by_keys(count: int) -> list[float]:
    """An operation under *count* keys."""
    async with Purgatory() as purgatory:
        found = []
        for _ in range(10):
            keys = [[(number, key) for key in range(count)] for number in range(200)]
            watched = per_item(lambda each: purgatory.watch(Waiter(30.0), each), keys)
            Waiter.ready = True
            found.append(watched + per_item(lambda each: purgatory.check_and_complete(each[0]), keys))
            Waiter.ready = False
        return [min(found), min(found) / count]


async def by_waiters(count: int) -> list[float]:
    """*count* operations under one key."""
    async with Purgatory() as purgatory:
        ops = fill(purgatory, count + 60, lambda _: "key")
        middle = ops[count // 2 :][:30]
        found = [
            per_item(lambda op: op.cancel(), middle),
            per_item(lambda _: purgatory.check_and_complete("key", limit=1), range(1)) / (count + 30),
        ]
        Waiter.ready = True
        found.append(per_item(lambda _: purgatory.check_and_complete("key", limit=1), range(20)))
        found.append(per_item(purgatory.check_and_complete, ["key"]) / (count + 10))
        Waiter.ready = False
        fill(purgatory, count, lambda _: "key")
        found.append(per_item(purgatory.complete_for_key, ["key"]) / count)
        return found


async def by_turns(count: int) -> list[float]:
    """What ends *count* operations in turns: the longest of them; and close(), which is one."""
    found = []
    for key_of, timeout, begin in (
        (lambda _: "key", 600.0, lambda purgatory: purgatory.notify("key")),
        (int, 600.0, lambda purgatory: purgatory.notify_all()),
        (int, 0.001, lambda purgatory: None),
        (int, 600.0, lambda purgatory: asyncio.ensure_future(purgatory.aclose())),
    ):
        async with Purgatory() as purgatory:
            fill(purgatory, count, key_of, timeout)
            Waiter.ready = timeout > 1.0
            found.append(await longest_turn(purgatory, begin))
            Waiter.ready = False
    async with Purgatory() as purgatory:
        fill(purgatory, count, int)
        found.append(per_item(lambda _: purgatory.close(), range(1)) / 1e3)
    return found


async def by_collector(count: int) -> list[float]:
    """The collector's percentage of the CPU time in which *count* tasks park."""
    spent, start = 0.0, 0.0

    def note(phase: str, _: object) -> None:
        nonlocal spent, start
        if phase == "start":
            start = process_time()
        else:
            spent += process_time() - start

    async def park(purgatory: Purgatory, number: int) -> None:
        await purgatory.watch(Waiter(600.0), (number,))

    shares = []
    limits = gc.get_threshold()
    for lines in (False, True):
        gc.collect()
        if lines:
            gc.freeze()
            gc.set_threshold(50_000, 20, 100)
        gc.callbacks.append(note)
        gc.enable()
        spent, begin = 0.0, process_time()
        async with Purgatory() as purgatory:
            tasks = [asyncio.ensure_future(park(purgatory, number)) for number in range(count)]
            await asyncio.sleep(0)
            shares.append(spent / (process_time() - begin) * 100)
            gc.disable()
            gc.callbacks.remove(note)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        gc.unfreeze()
        gc.set_threshold(*limits)
    return shares


class Fetch(DelayedOperation[str]):
    """An operation with attributes, as most are."""

    def __init__(self, log: str, size: int, timeout: float) -> None:
        super().__init__(timeout)
        self.log, self.size = log, size

    def try_complete(self) -> bool:
        return False


class SlottedFetch(Waiter):
    """The same with __slots__."""

    __slots__ = ("log", "size")

    def __init__(self, log: str, size: int, timeout: float) -> None:
        super().__init__(timeout)
        self.log, self.size = log, size


async def by_memory(count: int) -> list[float]:
    """The bytes of each of *count* waits, without its key."""
    return [await taken(begin, count) for begin in MEMORY.values()]


async def taken(begin: Callable[[Purgatory, Any], object], count: int) -> float:
    async with Purgatory() as purgatory:
        keys = [(number,) for number in range(count)]
        tracemalloc.start()
        held = [begin(purgatory, key) for key in keys]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        size = tracemalloc.get_traced_memory()[0] / count
        tracemalloc.stop()
        tasks = [each for each in held if isinstance(each, asyncio.Task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return size


async def await_operation(purgatory: Purgatory, key: Any) -> None:
    await purgatory.watch(Fetch("log", 1, 600.0), key)


async def await_slotted(purgatory: Purgatory, key: Any) -> None:
    await purgatory.watch(SlottedFetch("log", 1, 600.0), key)


async def await_condition(purgatory: Purgatory, key: Any) -> None:
    await purgatory.wait_for(lambda: None, key, timeout=600.0)


async def await_future(purgatory: Purgatory, key: Any) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    handle = loop.call_later(600.0, future.cancel)
    try:
        await future
    finally:
        handle.cancel()


async def await_event(purgatory: Purgatory, key: Any) -> None:
    async with asyncio.timeout(600.0):
        await asyncio.Event().wait()


def in_a_task(wait: Callable[[Purgatory, Any], Any]) -> Callable[[Purgatory, Any], object]:
    return lambda purgatory, key: asyncio.ensure_future(wait(purgatory, key))


MEMORY: dict[str, Callable[[Purgatory, Any], object]] = {
    "operation, `__slots__ = ()`": lambda purgatory, key: purgatory.watch(Waiter(600.0), key),
    "with two attributes": lambda purgatory, key: purgatory.watch(Fetch("log", 1, 600.0), key),
    "with two in `__slots__`": lambda purgatory, key: purgatory.watch(SlottedFetch("log", 1, 600.0), key),
    "task: operation with two attributes": in_a_task(await_operation),
    "task: with two in `__slots__`": in_a_task(await_slotted),
    "task: `wait_for`": in_a_task(await_condition),
    "task: `Future` + `call_later`": in_a_task(await_future),
    "task: `Event` + `timeout`": in_a_task(await_event),
}


TABLES: list[tuple[str, Callable[[int], Any], list[int], list[str]]] = [
    (
        "pending",
        by_pending,
        [1_000, 10_000, 100_000, 1_000_000],
        ["watch + complete, µs", "reschedule, µs", "cancel any, µs", "statistics, µs"],
    ),
    ("keys", by_keys, [1, 3, 10, 30, 100], ["watch + complete, µs", "for each key, µs"]),
    (
        "waiters",
        by_waiters,
        [1, 10, 100, 1_000, 10_000, 100_000],
        [
            "cancel from the middle, µs",
            "look in vain, limit=1, µs",
            "wake one, limit=1, µs",
            "check, each, µs",
            "complete_for_key, each, µs",
        ],
    ),
    (
        "longest turn of",
        by_turns,
        [1_000, 10_000, 100_000, 1_000_000],
        ["notify of a key, ms", "notify_all, ms", "expiry at once, ms", "aclose, ms", "close, ms"],
    ),
    ("waits, bytes of each", by_memory, [1_000, 10_000], list(MEMORY)),
    ("tasks", by_collector, [1_000, 10_000, 100_000, 1_000_000], ["the collector's share, %", "with the two lines, %"]),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, metavar="COUNT", help="leave out larger counts")
    most = parser.parse_args().most
    gc.disable()
    print(f"aiopurgatory {aiopurgatory.__version__}, {FORM}\n")
    for title, measure, counts, columns in TABLES:
        print(f"| {title} | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}")
        for count in track([each for each in counts if each <= most], title, console=Console(stderr=True)):
            found = asyncio.run(measure(count))
            print(f"| {count:,} | {' | '.join(f'{value:.3g}' for value in found)} |", flush=True)
            gc.collect()
        print()


if __name__ == "__main__":
    main()
