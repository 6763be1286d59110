"""python benchmarks/bench_timers.py -o timers.json: measure the timers with pyperf, in CPU time.

Set PYTHONPATH=build/compiled to measure our compiled form. To compile the others, too, copy this folder, compile the
copy (mypyc --strict peers/timers*.py) and run it.

add + cancel: others are pending with timeouts of 30 to 60 s. For the loops' own timers this is call_later() and
cancel(), with a loop iteration after every 1,000, in which asyncio and uvloop drop cancelled timers.
add + expire: each operation adds a timer with a timeout of 0 to 60 s, and moves time on until one expires on average.
Time is virtual. asyncio gets a loop on a virtual clock, with an iteration for every 100; uvloop cannot have one and is
left out. asyncio runs each callback in its context; the others call a function.

Every value includes a design's occasional work: it covers as many operations as lie between two rebuilds of a heap (add
+ cancel), or between two cascades of our coarsest buckets (8 s, add + expire). That takes long with many pending.
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
from typing import Any

import pyperf  # type: ignore[import-untyped]
from peers.timers import DESIGNS, Ours, TimerDesign, form_of_peers

import aiopurgatory

BLOCK = 1_000
TURN = 100  # operations of add + expire between two turns of a loop
SECOND = 1_000_000_000
LONGEST = 60.0
CASCADE = 8.0  # seconds between two cascades of our coarsest buckets, if timeouts are below 160 s
LATER = 3_600.0  # none of the loops' own timers may come due while others are measured; a heap is the same then
LOOPS = ["asyncio", "uvloop"]
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


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    if name == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def new_design(name: str) -> TimerDesign:
    design = DESIGNS[name]()
    return design.timer if isinstance(design, Ours) else design  # type: ignore[return-value]


def remaining() -> float:
    """Draw the rest of a timeout in a steady state: timeouts are uniform up to LONGEST."""
    return LONGEST * (1 - sqrt(1 - random.random()))


def settled() -> None:
    """Exempt the setup from garbage collection, which would come at random times."""
    gc.collect()
    gc.freeze()
    gc.enable()


# The functions that set up run once per process, not once per value.


@cache
def waiting_design(name: str, pending: int) -> tuple[TimerDesign, list[Any]]:
    gc.disable()
    make, design = DESIGNS[name]().make, new_design(name)
    for _ in range(pending):
        design.add(make(random.randrange(30 * SECOND, 60 * SECOND)))
    items = [make(random.randrange(30 * SECOND, 60 * SECOND)) for _ in range(BLOCK)]
    settled()
    return design, items


@cache
def waiting_loop(name: str, pending: int) -> tuple[asyncio.AbstractEventLoop, list[float]]:
    gc.disable()
    loop = new_loop(name)
    for _ in range(pending):
        loop.call_later(LATER + random.uniform(30, 60), ignore, None)
    delays = [LATER + random.uniform(30, 60) for _ in range(BLOCK)]
    turn(loop)
    settled()
    return loop, delays


@cache
def steady_design(name: str, pending: int) -> TimerDesign:
    gc.disable()
    make, design = DESIGNS[name]().make, new_design(name)
    for _ in range(pending):
        design.add(make(1 + round(remaining() * SECOND)))
    settled()
    return design


@cache
def steady_loop(pending: int) -> VirtualLoop:
    gc.disable()
    loop = VirtualLoop()
    for _ in range(pending):
        loop.call_later(remaining(), ignore, None)
    turn(loop)
    settled()
    return loop


clocks: dict[tuple[str, int], int] = {}


def cancel_in_design(loops: int, name: str, pending: int, blocks: int) -> float:
    design, items = waiting_design(name, pending)
    add, cancel = design.add, design.cancel
    begin = process_time()
    for _ in range(loops * blocks):
        for item in items:
            add(item)
            cancel(item)
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


def expire_in_design(loops: int, name: str, pending: int, blocks: int) -> float:
    design = steady_design(name, pending)
    make, add, advance = DESIGNS[name]().make, design.add, design.advance
    step = round(LONGEST / 2 * SECOND / pending)
    now = clocks.get((name, pending), 0)
    spent = 0.0
    for _ in range(loops * blocks):
        items = [make(now + i * step + random.randrange(round(LONGEST * SECOND)) + 1) for i in range(BLOCK)]
        begin = process_time()
        for item in items:
            add(item)
            now += step
            advance(now, ignore)
        spent += process_time() - begin
    clocks[name, pending] = now
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
    return pending // BLOCK + 1 if name in ("heap", "asyncio") else 100


def blocks_between_cascades(pending: int) -> int:
    return max(1, round(CASCADE / (LONGEST / 2) * pending / BLOCK))


def measure(runner: pyperf.Runner, name: str, pending: int) -> None:
    looping = name in LOOPS
    cancelling = cancel_in_loop if looping else cancel_in_design
    bench(runner, "add + cancel", cancelling, name, pending, blocks_between_rebuilds(name, pending))
    if name != "uvloop":
        expiring = expire_in_loop if looping else expire_in_design
        bench(runner, "add + expire", expiring, name, pending, blocks_between_cascades(pending))


def bench(runner: pyperf.Runner, operation: str, function: Measured, name: str, pending: int, blocks: int) -> None:
    metadata = {
        "operation": operation,
        "design": name,
        "pending": pending,
        "form": "compiled" if aiopurgatory.COMPILED else "interpreted",
        "form_of_peers": form_of_peers(),
    }
    title = f"{operation}, {name}, {pending} pending"
    arguments = (name, pending, blocks)
    runner.bench_time_func(title, function, *arguments, inner_loops=blocks * BLOCK, metadata=metadata)


def pass_on(command: list[str], args: argparse.Namespace) -> None:
    """pyperf's workers are processes of their own."""
    command += ["--pending", args.pending, "--designs", args.designs]


def main() -> None:
    runner = pyperf.Runner(add_cmdline_args=pass_on)
    runner.argparser.add_argument(
        "--pending", default=PENDING, help="numbers of other timers pending, separated by commas"
    )
    runner.argparser.add_argument(
        "--designs", default=",".join([*DESIGNS, *LOOPS]), help="designs, separated by commas"
    )
    args = runner.parse_args()
    for name in args.designs.split(","):
        for pending in args.pending.split(","):
            measure(runner, name, int(pending))


if __name__ == "__main__":
    main()
