"""python benchmarks/bench_operations.py --what watch --competitor ours: measure one kind of work of one competitor.

Prints a line of JSON per value: CPU time per operation in ns, unless its name gives another unit.
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
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from math import inf
from statistics import median
from time import monotonic, process_time
from typing import Any

import uvloop
from buses.member import FORM
from peers.base import Peer
from peers.events import EventPerKey, RayShape
from peers.futures import FuturePerRequest
from peers.old import Old
from peers.ours import AwaitedSoon, Bare, Ours, OursAwaited, Plain
from workload.driver import Turns

Keys = tuple[Hashable, ...]
Values = dict[str, float]


COMPETITORS: dict[str, Callable[[], Peer]] = {
    "ours": Bare,
    "ours, soon": partial(Bare, soon=True),
    "ours, awaited": OursAwaited,
    "ours, awaited, soon": AwaitedSoon,
    "old": Old,
    "futures": FuturePerRequest,
    "events": EventPerKey,
    "ray": RayShape,
}
#: The requests of these check on waking whether it is time: seconds to park a batch of 1,000.
READY_IN = {"events": 0.1, "ray": 0.5}
#: The order in which waiters are cancelled, and the timeouts of a million, are the same in each round.
rng = random.Random(1)


class Bench:
    """One competitor in one process; sizes are divided by *scale*."""

    def __init__(self, name: str, scale: int) -> None:
        self.name = name
        self.scale = scale

    async def new(self) -> Peer:
        peer = COMPETITORS[self.name]()
        await peer.start()
        return peer

    async def new_that_tells_lateness(self) -> Peer:
        peer = Ours() if self.name == "ours" else COMPETITORS[self.name]()
        await peer.start()
        return peer

    def size(self, number: int) -> int:
        return max(number // self.scale, 1)

    def park(self, peer: Peer, keys: list[Keys], timeout: float, completes_at: float = inf) -> list[Any]:
        deadline = monotonic() + timeout
        return [peer.request(each, timeout, deadline, completes_at, b"") for each in keys]

    # the measured work

    async def watch(self) -> Values:
        """A request comes and is answered, others pending"""
        peer = await self.new()
        self.park(peer, distinct(self.size(100_000), 1), 600.0)
        await settle()
        values = {}
        for keys_each in (1, 3, 10):
            keys: list[Keys] = [tuple(f"{i} {k}" for k in range(keys_each)) for i in range(1_000)]
            times = [await self.answer(peer, keys) for _ in range(4 if self.name in READY_IN else 20)]
            values[plural(keys_each)] = median(times[1:])
        return values

    async def answer(self, peer: Peer, keys: list[Keys]) -> float:
        others = peer.pending()
        begin = process_time()
        completes_at = monotonic() + READY_IN.get(self.name, inf)
        handles = self.park(peer, keys, 300.0, completes_at)
        await asyncio.sleep(0)
        if self.name in READY_IN:
            await asyncio.sleep(completes_at - monotonic() + 0.001)
        for handle in handles:
            peer.complete(handle)
        await drained(peer, others)  # on a slow machine some are through already
        return (process_time() - begin) * 1e9 / len(keys)

    async def parked(self) -> Values:
        """Requests are parked under keys of their own; bytes by tracemalloc, without the keys"""
        values = {}
        for keys_each in (1, 3, 10):
            values[plural(keys_each)] = await self.park_and_leave(distinct(self.size(100_000), keys_each), process_time)
            tracemalloc.start()
            traced = partial(traced_memory, 1e-9)
            values[f"{plural(keys_each)}, bytes"] = await self.park_and_leave(
                distinct(self.size(20_000), keys_each), traced
            )
            tracemalloc.stop()
        return values

    async def park_and_leave(self, keys: list[Keys], gauge: Callable[[], float]) -> float:
        peer = await self.new()
        begin = gauge()
        self.park(peer, keys, 600.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # Ray's tasks of tasks
        spent = gauge() - begin
        await peer.stop()
        return spent * 1e9 / len(keys)

    async def cancelled(self) -> Values:
        """Waiters of one key are cancelled in random order"""
        peer = await self.new()
        number = self.size(40_000)
        handles = self.park(peer, [("hot",)] * number, 600.0)
        await settle()
        waiters = list(getattr(peer, "tasks", handles))
        rng.shuffle(waiters)
        begin = process_time()
        for each in waiters:
            each.cancel()
        await drained(peer)
        spent = process_time() - begin
        return {"each": spent * 1e9 / number, "in all, ms": spent * 1e3}

    async def herd(self) -> Values:
        """All waiters of one key are completed by one event; the collector as it comes, and after gc.freeze()"""
        values = {}
        for how in ("", ", frozen"):
            peer = await self.new()
            number = self.size(100_000)
            Plain.ready = False
            completes_at = monotonic() + (20.0 if self.name == "ray" else 6.0) / self.scale
            self.park(peer, [("hot",)] * number, 600.0, completes_at)
            await asyncio.sleep(max(completes_at - monotonic(), 0) + 0.01)
            if how:
                await settle()
            Plain.ready = True
            begin = process_time()
            with Turns() as turns:
                peer.check("hot")
                await drained(peer)
            values[f"each{how}"] = (process_time() - begin) * 1e9 / number
            values[f"longest turn{how}, ms"] = turns.longest_ms
            await peer.stop()
        return values

    async def instant(self) -> Values:
        """Time-outs in one instant; the collector frozen"""
        peer = await self.new_that_tells_lateness()
        number = self.size(50_000)
        at = monotonic() + (20.0 if self.name == "ray" else 5.0) / self.scale
        for i in range(number):
            peer.request((i,), at - monotonic(), at, inf, b"")
            if i % 100 == 0:  # a task's timeout begins when it starts
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        await settle()
        await asyncio.sleep(max(at - monotonic() - 0.05, 0))
        with Turns() as turns:
            await drained(peer)
        late = sorted(peer.tally.lateness)
        return {
            "late p50, ms": late[len(late) // 2] * 1e3,
            "late max, ms": late[-1] * 1e3,
            "longest turn, ms": turns.longest_ms,
        }

    async def nobody(self) -> Values:
        """A check of a key that nobody waits under"""
        peer = await self.new()
        self.park(peer, distinct(self.size(100_000), 1), 600.0)
        await settle()
        check, times = peer.check, []
        for _ in range(7):
            begin = process_time()
            for _ in range(self.size(100_000)):
                check("nobody waits here")
            times.append((process_time() - begin) * 1e9 / self.size(100_000))
        return {"each": median(times)}

    async def million(self) -> Values:
        """A million time-outs from 10 to 14 s, half of them cancelled, and the collector frozen: the longest turn"""
        peer = await self.new()
        assert isinstance(peer, Bare)
        number = self.size(1_000_000)
        cancelled = []
        for i in range(number):
            op = peer.purgatory.watch(Plain(rng.uniform(10, 14) / self.scale), (i,))
            if i % 2:
                cancelled.append(op)
            if i % 1_000 == 0:
                await asyncio.sleep(0)
        for op in cancelled:
            op.cancel()
        cancelled.clear()
        await settle()
        with Turns() as turns:
            await drained(peer)
        return {"longest turn, ms": turns.longest_ms}


def distinct(number: int, keys_each: int) -> list[Keys]:
    return [tuple((i, k) for k in range(keys_each)) for i in range(number)]


def plural(keys_each: int) -> str:
    return "1 key" if keys_each == 1 else f"{keys_each} keys"


def traced_memory(unit: float) -> float:
    return tracemalloc.get_traced_memory()[0] * unit


async def drained(peer: Peer, left: int = 0) -> None:
    while peer.pending() > left:  # noqa: ASYNC110 there is no event to wait for
        await asyncio.sleep(0)


async def settle() -> None:
    """All tasks have started, and nothing of it is the collector's."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    gc.freeze()


WHAT: dict[str, Callable[[Bench], Coroutine[Any, Any, Values]]] = {
    measure.__name__: measure
    for measure in (
        Bench.watch,
        Bench.parked,
        Bench.cancelled,
        Bench.herd,
        Bench.instant,
        Bench.nobody,
        Bench.million,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=WHAT, default="watch")
    parser.add_argument("--competitor", choices=COMPETITORS, default="ours")
    parser.add_argument("--scale", type=int, default=1, help="divide all sizes by this")
    args = parser.parse_args()
    measure = WHAT[args.what]
    values = uvloop.new_event_loop().run_until_complete(measure(Bench(args.competitor, args.scale)))
    labels = {"what": args.what, "title": measure.__doc__, "form": FORM, "python": platform.python_version()}
    for series, value in values.items():
        print(json.dumps({**labels, "series": series, "value": value}), flush=True)
    os._exit(0)  # parked operations are not worth an orderly end


if __name__ == "__main__":
    main()
