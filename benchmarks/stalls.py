"""python benchmarks/precision.py --only stalls: the longest single call of each timer, with many pending."""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from peers.timers import DESIGNS, Ours, TimerDesign
from peers.timers_hashed import TICK

SECOND = 1_000 * TICK
Line = dict[str, Any]
#: Per cent: over half, so that those that rebuild their heap do.
CANCELLED = 51

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
except ImportError:
    pass


def ignore(item: object) -> None:
    pass


def stalls(args: argparse.Namespace) -> Iterator[Line]:
    """Many timers of 30 to 60 s, half of them cancelled, then the rest expires: the longest single call.

    For a loop: its longest turn after half were cancelled. The garbage collector is off. "ours, one by one" takes what
    is due one by one and cascades at most 1,000 between: so does a purgatory, and yields in between.
    """
    for name, make in DESIGNS.items():
        yield {"design": name, "timers": args.timers, **stalls_of(make(), args.timers, steps)}
    yield {"design": "ours, one by one", "timers": args.timers, **stalls_of(Ours(), args.timers, small_steps)}
    for name, make_loop in LOOPS.items():
        yield {"loop": name, "timers": args.timers, "longest_turn_ms": longest_turn(make_loop(), args.timers) * 1e3}


def stalls_of(design: Any, timers: int, steps_of: Callable[[Any], Iterator[Callable[[], object]]]) -> Line:
    rng = random.Random(1)
    items = [design.make(rng.randrange(30 * SECOND, 60 * SECOND)) for _ in range(timers)]
    for item in items:
        design.add(item)
    rng.shuffle(items)
    cancelled = items[: timers * CANCELLED // 100]
    del items
    longest_cancel = longest(partial(design.cancel, item) for item in cancelled)
    return {"longest_cancel_ms": longest_cancel * 1e3, "longest_advance_ms": longest(steps_of(design)) * 1e3}


def steps(design: TimerDesign) -> Iterator[Callable[[], object]]:
    while (following := design.next_expiration()) is not None:
        yield partial(design.advance, following, ignore)


def small_steps(design: Ours) -> Iterator[Callable[[], object]]:
    while (following := design.next_expiration()) is not None:
        yield partial(design.timer.poll, following, 1_000)


def longest_turn(loop: asyncio.AbstractEventLoop, timers: int) -> float:
    handles = [loop.call_later(3_600 + random.uniform(30, 60), ignore, None) for _ in range(timers)]

    def turn() -> None:
        loop.call_soon(loop.stop)
        loop.run_forever()

    turn()
    random.shuffle(handles)
    for handle in handles[: timers * CANCELLED // 100]:
        handle.cancel()
    return longest([turn] * 5)


def longest(calls: Iterable[Callable[[], object]]) -> float:
    """Seconds that the longest of *calls* took."""
    gc.collect()
    gc.disable()
    worst = 0.0
    for call in calls:
        begin = perf_counter()
        call()
        worst = max(worst, perf_counter() - begin)
    gc.enable()
    return worst
