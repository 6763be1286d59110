"""python benchmarks/bench_precision.py > precision.jsonl: measure lateness, wake-ups and stalls of the timers.

Prints one line of JSON per part and design. ``part`` is the name of the function that measured it; its docstring says
how. Choose the compiled forms as for bench_timers.py. --quick and --timers reduce all sizes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import quantiles
from time import monotonic, perf_counter
from typing import Any

from peers.timers import DESIGNS, Ours, TimerDesign, form_of_peers
from peers.timers_hashed import TICK

import aiopurgatory
from aiopurgatory import DelayedOperation, Purgatory

SECOND = 1_000 * TICK
Line = dict[str, Any]
Timeouts = list[tuple[int, int]]  # when added, and the timeout
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


# virtual time


def virtual_time(args: argparse.Namespace) -> Iterator[Line]:
    """Timeouts of 1 ms to 10 min, log-uniform, added within 10 s; advanced whenever the design asks for it."""
    number, longest = (200, 10 * SECOND) if args.quick else (20_000, 600 * SECOND)
    rng = random.Random(1)
    span = math.log(longest / TICK)
    timeouts = [(rng.randrange(10 * SECOND), round(TICK * math.exp(rng.uniform(0, span)))) for _ in range(number)]
    timeouts.sort()
    for name, make in DESIGNS.items():
        yield {"design": name, **lateness(fired(make(), timeouts))}
    yield {"design": "Kafka's rule", "note": "computed: rounds down", **lateness(rounded_down(timeouts))}


def fired(design: TimerDesign, timeouts: Timeouts) -> Iterator[tuple[int, int]]:
    """Return how late each timer expires, and its timeout."""
    given: dict[int, int] = {}
    expired: list[Any] = []

    def advance(now: int) -> Iterator[tuple[int, int]]:
        while (following := design.next_expiration()) is not None and following <= now:
            design.advance(following, expired.append)
            yield from ((following - item.deadline, given[id(item)]) for item in expired)
            expired.clear()

    items = []  # kept, so that no two have the same id
    for added, timeout in timeouts:
        yield from advance(added)
        design.advance(added, expired.append)  # nothing is due, but it knows the time
        items.append(design.make(added + timeout))
        given[id(items[-1])] = timeout
        design.add(items[-1])
    yield from advance(1 << 60)


def rounded_down(timeouts: Timeouts) -> Iterator[tuple[int, int]]:
    for added, timeout in timeouts:
        deadline = added + timeout
        yield max(deadline - deadline % TICK, added) - deadline, timeout


def lateness(found: Iterable[tuple[int, int]]) -> Line:
    """Return a histogram and the extremes. Lateness beyond one tick is also given as a share of the timeout."""
    pairs = list(found)
    late = [late for late, _ in pairs]
    return {
        "timers": len(pairs),
        "late": dict(sorted(Counter(map(decade, late)).items())),
        "most_early_ms": max(0, -min(late)) / TICK,
        "most_late_ms": max(0, max(late)) / TICK,
        "most_late_share": max(max(0, late - TICK) / timeout for late, timeout in pairs),
    }


def decade(late: int) -> str:
    if late < 0:
        return "early"
    power = 0
    while late > 10**power * TICK:
        power += 1
    return f"to {10**power} ms"


# real time


class Timed(DelayedOperation[None]):
    """Records when it expired."""

    __slots__ = ("times",)

    def __init__(self, timeout: float, times: list[float]) -> None:
        super().__init__(timeout)
        self.times = times

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.times.append(monotonic() - self.times[0])


def real_time(args: argparse.Namespace) -> Iterator[Line]:
    """1,000 timeouts of 1 to 200 ms on each loop, its own and a purgatory's. Early is by time.monotonic()."""
    for name, make in LOOPS.items():
        for who, measured in (("loop", by_loop), ("ours", by_purgatory)):
            loop = make()
            late = loop.run_until_complete(measured(100 if args.quick else 1_000))
            loop.close()
            early = [-seconds * 1e3 for seconds in late if seconds < 0]
            percentiles = quantiles([seconds * 1e3 for seconds in late], n=100)
            yield {
                "design": who,
                "loop": name,
                "timers": len(late),
                "early_share": len(early) / len(late),
                "most_early_ms": max(early, default=0.0),
                "late_p50_ms": percentiles[49],
                "late_p99_ms": percentiles[98],
            }


async def by_loop(number: int) -> list[float]:
    loop = asyncio.get_running_loop()

    def arm(timeout: float, times: list[float]) -> None:
        loop.call_later(timeout, lambda: times.append(monotonic() - times[0]))

    return await arm_all(arm, number)


async def by_purgatory(number: int) -> list[float]:
    async with Purgatory() as purgatory:
        return await arm_all(lambda timeout, times: purgatory.watch(Timed(timeout, times), (timeout,)), number)


async def arm_all(arm: Callable[[float, list[float]], object], number: int) -> list[float]:
    """Return how late each of *number* timeouts is, in seconds. They are armed, and so expire, over a span of time."""
    rng = random.Random(1)
    armed: list[tuple[float, list[float]]] = []
    for i in range(number):
        timeout = rng.uniform(0.001, 0.2)
        # The deadline counts from before the call: firing before it is certainly early.
        armed.append((timeout, [monotonic()]))
        arm(*armed[-1])
        if i % 10 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.25)
    return [times[1] - timeout for timeout, times in armed]


# wake-ups


def wake_ups(args: argparse.Namespace) -> Iterator[Line]:
    """10 timeouts of 30 s per second for 10 min, 90 % of them cancelled after 50 ms; asleep until the next expiration.

    It sleeps like a purgatory's clock: an earlier expiration shortens the sleep at once; a later one doesn't extend it.
    """
    seconds = 40 if args.quick else 600
    for name, make in DESIGNS.items():
        woken, expired = sleep_through(make(), seconds, random.Random(1))
        yield {"design": name, "seconds": seconds, "per_second": woken / seconds, "expired": expired}


def sleep_through(design: TimerDesign, seconds: int, rng: random.Random) -> tuple[int, int]:
    """Return how often it woke up, and how many timers expired."""
    events: list[tuple[int, int, Any]] = []  # time, number, and the timer to cancel, or None: add one
    for number in range(10 * seconds):
        heapq.heappush(events, (rng.randrange(seconds * SECOND), number, None))
    woken = expired = 0
    armed: int | None = None
    while events:
        now, number, item = heapq.heappop(events)
        while armed is not None and armed <= now:
            woken += 1
            expired += design.advance(armed, ignore)
            armed = design.next_expiration()
        expired += design.advance(now, ignore)
        if item is not None:
            design.cancel(item)
            continue
        item = design.make(now + 30 * SECOND)
        design.add(item)
        if rng.random() < 0.9:
            heapq.heappush(events, (now + SECOND // 20, number, item))
        following = design.next_expiration()
        assert following is not None
        armed = following if armed is None else min(armed, following)
    return woken, expired


# stalls


def stalls(args: argparse.Namespace) -> Iterator[Line]:
    """Many timers of 30 to 60 s, half of them cancelled, then the rest expires: the longest single call.

    For a loop: its longest iteration after half were cancelled. The garbage collector is off. "ours, one by one"
    expires one timer at a time and cascades at most 1,000 in between. A purgatory does the same, and yields in between.
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
    """Return the seconds of the longest of *calls*."""
    gc.collect()
    gc.disable()
    worst = 0.0
    for call in calls:
        begin = perf_counter()
        call()
        worst = max(worst, perf_counter() - begin)
    gc.enable()
    return worst


PARTS = {part.__name__: part for part in (virtual_time, real_time, wake_ups, stalls)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--timers", type=int, default=1_000_000, help="timers in the stalls")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    args = parser.parse_args()
    forms = {"form": "compiled" if aiopurgatory.COMPILED else "interpreted", "form_of_peers": form_of_peers()}
    for name in args.only or PARTS:
        for line in PARTS[name](args):
            print(json.dumps({"part": name} | forms | line), flush=True)


if __name__ == "__main__":
    main()
