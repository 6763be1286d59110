"""python benchmarks/bench_timers.py -o timers.json: measure our timer and the loops' own with pyperf, in CPU time.

Set PYTHONPATH=build/compiled to measure our compiled form.

add + cancel: others are pending with timeouts of 30 to 60 s. For the loops' own timers this is call_later() and
cancel(), with a loop iteration after every 1,000, in which asyncio and uvloop drop cancelled timers.
add + expire: each operation adds a timer with a timeout of 0 to 60 s, and moves time on until one expires on average.
Time is virtual. asyncio gets a loop on a virtual clock, with an iteration for every 100; uvloop cannot have one and is
left out. asyncio runs each callback in its context; ours calls a function.

Every value includes a design's occasional work: it covers as many operations as lie between two rebuilds of asyncio's
heap (add + cancel), or between two cascades of our coarsest buckets (8 s, add + expire). That takes long with many
pending.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
from collections import deque
from collections.abc import Callable
from functools import cache
from math import sqrt
from time import process_time

import pyperf  # type: ignore[import-untyped]
from buses.member import FORM, loop_factory

from aiopurgatory.timer import Timer, TimerTask

BLOCK = 1_000
TURN = 100  # operations of add + expire between two turns of a loop
SECOND = 1_000_000_000
LONGEST = 60.0
CASCADE = 8.0  # seconds between two cascades of our coarsest buckets, if timeouts are below 160 s
LATER = 3_600.0  # none of the loops' own timers may come due while others are measured; a heap is the same then
DESIGNS = ["ours", "asyncio", "uvloop"]
PENDING = "1000,10000,100000,1000000,5000000"

Measured = Callable[[int, str, int, int], float]  # loops, design, pending, blocks per loop; returns seconds

ignore: Callable[[object], object] = deque[object](maxlen=0).append  # as quick to call as anything


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on a virtual clock."""

    now = 0.0

    def time(self) -> float:
        return self.now


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def remaining() -> float:
    """Draw the rest of a timeout in a steady state: timeouts are uniform up to LONGEST."""
    return LONGEST * (1 - sqrt(1 - random.random()))


def distant() -> TimerTask:
    return TimerTask(random.randrange(30 * SECOND, 60 * SECOND))


def settled() -> None:
    """Exempt the setup from garbage collection, which would come at random times."""
    gc.collect()
    gc.freeze()
    gc.enable()


# The functions that set up run once per process, not once per value.


@cache
def waiting_timer(pending: int) -> tuple[Timer, list[TimerTask]]:
    gc.disable()
    timer = Timer(SECOND // 1_000, 20)
    for _ in range(pending):
        timer.add(distant())
    tasks = [distant() for _ in range(BLOCK)]
    settled()
    return timer, tasks


@cache
def waiting_loop(name: str, pending: int) -> tuple[asyncio.AbstractEventLoop, list[float]]:
    gc.disable()
    loop = loop_factory(name)()
    for _ in range(pending):
        loop.call_later(LATER + random.uniform(30, 60), ignore, None)
    delays = [LATER + random.uniform(30, 60) for _ in range(BLOCK)]
    turn(loop)
    settled()
    return loop, delays


@cache
def steady_timer(pending: int) -> Timer:
    gc.disable()
    timer = Timer(SECOND // 1_000, 20)
    for _ in range(pending):
        timer.add(TimerTask(1 + round(remaining() * SECOND)))
    settled()
    return timer


@cache
def steady_loop(pending: int) -> VirtualLoop:
    gc.disable()
    loop = VirtualLoop()
    for _ in range(pending):
        loop.call_later(remaining(), ignore, None)
    turn(loop)
    settled()
    return loop


clocks: dict[int, int] = {}


def cancel_in_timer(loops: int, name: str, pending: int, blocks: int) -> float:
    timer, tasks = waiting_timer(pending)
    add, cancel = timer.add, timer.cancel
    begin = process_time()
    for _ in range(loops * blocks):
        for task in tasks:
            add(task)
            cancel(task)
    return process_time() - begin


def cancel_in_loop(loops: int, name: str, pending: int, blocks: int) -> float:
    loop, delays = waiting_loop(name, pending)
    call_later = loop.call_later
    begin = process_time()
    for _ in range(loops * blocks):
        for delay in delays:
            call_later(delay, ignore, None).cancel()
        turn(loop)
    return process_time() - begin


def expire_in_timer(loops: int, name: str, pending: int, blocks: int) -> float:
    timer = steady_timer(pending)
    add, advance = timer.add, timer.advance
    step = round(LONGEST / 2 * SECOND / pending)
    now = clocks.get(pending, 0)
    spent = 0.0
    for _ in range(loops * blocks):
        tasks = [TimerTask(now + i * step + random.randrange(round(LONGEST * SECOND)) + 1) for i in range(BLOCK)]
        begin = process_time()
        for task in tasks:
            add(task)
            now += step
            advance(now, ignore)
        spent += process_time() - begin
    clocks[pending] = now
    return spent


def expire_in_loop(loops: int, name: str, pending: int, blocks: int) -> float:
    loop = steady_loop(pending)
    call_later = loop.call_later
    step = LONGEST / 2 / pending
    spent = 0.0
    for _ in range(loops * blocks * BLOCK // TURN):
        delays = [random.uniform(0, LONGEST) for _ in range(TURN)]
        begin = process_time()
        for delay in delays:
            call_later(delay, ignore, None)
            loop.now += step
        turn(loop)
        spent += process_time() - begin
    return spent


def blocks_between_rebuilds(name: str, pending: int) -> int:
    return pending // BLOCK + 1 if name == "asyncio" else 100


def blocks_between_cascades(pending: int) -> int:
    return max(1, round(CASCADE / (LONGEST / 2) * pending / BLOCK))


def measure(runner: pyperf.Runner, name: str, pending: int) -> None:
    cancelling = cancel_in_timer if name == "ours" else cancel_in_loop
    bench(runner, "add + cancel", cancelling, name, pending, blocks_between_rebuilds(name, pending))
    if name != "uvloop":
        expiring = expire_in_timer if name == "ours" else expire_in_loop
        bench(runner, "add + expire", expiring, name, pending, blocks_between_cascades(pending))


def bench(runner: pyperf.Runner, operation: str, function: Measured, name: str, pending: int, blocks: int) -> None:
    metadata = {"operation": operation, "design": name, "pending": pending, "form": FORM}
    title = f"{operation}, {name}, {pending} pending"
    arguments = (name, pending, blocks)
    runner.bench_time_func(title, function, *arguments, inner_loops=blocks * BLOCK, metadata=metadata)


def pass_on(command: list[str], args: argparse.Namespace) -> None:
    """pyperf's workers are processes of their own."""
    command += ["--pending", args.pending, "--designs", args.designs]


def main() -> None:
    runner = pyperf.Runner(add_cmdline_args=pass_on)
    runner.argparser.add_argument("--pending", default=PENDING, help="numbers of other timers, separated by commas")
    runner.argparser.add_argument("--designs", default=",".join(DESIGNS), help="designs, separated by commas")
    args = runner.parse_args()
    for name in args.designs.split(","):
        for pending in args.pending.split(","):
            measure(runner, name, int(pending))


if __name__ == "__main__":
    main()
