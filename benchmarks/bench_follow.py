"""python benchmarks/bench_follow.py --compiled build/compiled: the cost of a value that is delivered to a consumer.

    single   one producer and one consumer: each value wakes the consumer's task
    crowd    the same with 1,000 consumers, of which each gets every value. The loop iterates once for all
    at hand  the value is there when the consumer asks for it: no task waits

Competitors: ``purgatory.follow()``, without and with ``idle``; an ``asyncio.Queue`` for each consumer, with
put_nowait() and get(); and a loop around ``wait_for()``. A queue keeps every value. It has no heartbeat, and no end.

Prints a line of JSON for each figure: CPU us for each value. Then a table of medians, ranges, and ratios to the queue
within the rounds. Each figure comes from a process of its own, in turns, so the ratios compare runs side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from collections.abc import Callable, Coroutine, Iterator
from time import process_time
from typing import Any

from buses.member import FORM, loop_factory
from rounds import child, parser_of, printing, turns

from aiopurgatory import Purgatory

ROUNDS = 7
WHATS = {"single": 1, "crowd": 1_000, "at hand": 0}


class Follow:
    """Follows a number that changes."""

    idle: Any = None

    def __init__(self, purgatory: Purgatory, key: int) -> None:
        self.purgatory, self.key = purgatory, key
        self.value = 0
        self.changes = purgatory.follow([key], self.read, 0, idle=self.idle)

    async def read(self, since: int | None) -> tuple[int, int] | None:
        value = self.value
        return None if value == since else (value, value)

    def put(self) -> None:
        self.value += 1
        self.purgatory.check_and_complete(self.key)

    async def get(self) -> object:
        return await anext(self.changes)

    async def consume(self, count: int) -> None:
        async for _ in self.changes:
            count -= 1
            if count == 0:
                return


class FollowIdle(Follow):
    idle = 15.0


class Queue:
    def __init__(self, purgatory: Purgatory, key: int) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()

    def put(self) -> None:
        self.queue.put_nowait(1)

    async def get(self) -> object:
        return await self.queue.get()

    async def consume(self, count: int) -> None:
        get = self.queue.get
        for _ in range(count):
            await get()


class WaitFor:
    def __init__(self, purgatory: Purgatory, key: int) -> None:
        self.purgatory, self.key = purgatory, key
        self.value = self.seen = 0

    def news(self) -> int | None:
        return self.value if self.value != self.seen else None

    def put(self) -> None:
        self.value += 1
        self.purgatory.check_and_complete(self.key)

    async def get(self) -> object:
        self.seen = await self.purgatory.wait_for(self.news, (self.key,), timeout=15.0)
        return self.seen

    async def consume(self, count: int) -> None:
        for _ in range(count):
            await self.get()


COMPETITORS: dict[str, Callable[[Purgatory, int], Any]] = {
    "follow": Follow,
    "follow, idle": FollowIdle,
    "queue": Queue,
    "wait_for": WaitFor,
}


async def wake(kind: Callable[[Purgatory, int], Any], consumers: int, values: int) -> float:
    """CPU seconds for each value that wakes a task."""
    async with Purgatory() as purgatory:
        pairs = [kind(purgatory, key) for key in range(consumers)]
        each = values // consumers
        tasks = [asyncio.create_task(pair.consume(each)) for pair in pairs]
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        gc.freeze()
        begin = process_time()
        for _ in range(each):
            for pair in pairs:
                pair.put()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return (process_time() - begin) / (each * consumers)


async def take(kind: Callable[[Purgatory, int], Any], values: int) -> float:
    """CPU seconds for each value that is at hand."""
    async with Purgatory() as purgatory:
        pair = kind(purgatory, 0)
        pair.put()
        await pair.get()
        begin = process_time()
        for _ in range(values):
            pair.put()
            await pair.get()
        return (process_time() - begin) / values


def measured_here(what: str, competitor: str, loop: str, values: int) -> float:
    kind, consumers = COMPETITORS[competitor], WHATS[what]
    run: Coroutine[Any, Any, float] = wake(kind, consumers, values) if consumers else take(kind, values)
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        return runner.run(run)


def lines(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for number in range(args.rounds or ROUNDS):
        for what in WHATS:
            for name in turns(list(COMPETITORS), number):
                settings = json.dumps([what, name, args.loop, args.values])
                seconds, form = child([__file__, "--one", settings], args.compiled)
                line = {"round": number, "what": what, "competitor": name, "loop": args.loop, "form": form}
                yield {**line, "cpu_us": seconds * 1e6}


def main() -> None:
    parser = parser_of(__doc__, ROUNDS)
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    args = parser.parse_args()
    if args.one:
        print(json.dumps([measured_here(*args.one), FORM]))
        return
    with printing("follow", args, ["aiopurgatory", "uvloop"]) as told:
        told.lines(lines(args))


if __name__ == "__main__":
    main()
