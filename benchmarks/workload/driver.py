"""Play a trace to a competitor, open loop: the clock does not wait for a late generator.

Due requests are made in iterations of the event loop. A request enters the queue of completions, which has a resolution
of a millisecond, when it is made. It completes ``latency`` after that, however late it was made.
"""

from __future__ import annotations

import asyncio
import gc
from array import array
from bisect import bisect_right
from collections import defaultdict
from itertools import islice
from math import inf
from time import monotonic, perf_counter
from typing import Any

from peers.base import Peer

from .requests import Request

#: Maximum requests made in one loop iteration.
BATCH = 200
#: Seconds between two readings of the clock when idle: the resolution of an event loop's timer.
NAP = 0.001


class Driver:
    """One run.

    Args:
        arrivals: seconds since the start, one for each of *requests*.
        give_up_after: seconds after which no more requests are made, so that an overloaded competitor ends.
    """

    def __init__(self, peer: Peer, requests: list[Request], arrivals: array[float], give_up_after: float = inf) -> None:
        self._peer = peer
        self._requests = iter(requests)
        self._arrivals = arrivals
        self._give_up_after = give_up_after
        self._made = 0
        self._calendar: defaultdict[int, list[Any]] = defaultdict(list)  # by millisecond
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._last_arrival = 0.0
        self.longest_turn = 0.0
        self.peak_pending = 0

    async def run(self) -> None:
        self._start = self._wanted = monotonic()
        self._due = int(self._start * 1000)
        self._turn()
        await self._over

    @property
    def made(self) -> int:
        """The number of requests made."""
        return self._made

    @property
    def rate(self) -> float:
        """Requests made per second."""
        return self._made / (self._last_arrival - self._start)

    def _turn(self) -> None:
        now = monotonic()
        self.longest_turn = max(self.longest_turn, now - self._wanted)
        self._complete_due(int(now * 1000))
        if self._made < len(self._arrivals):
            self._make_due(now)
        elif self._peer.tally.ended == self._made:
            self._over.set_result(None)
            return
        self.peak_pending = max(self.peak_pending, self._peer.pending())
        self._next_turn(now)

    def _next_turn(self, now: float) -> None:
        behind = self._made < len(self._arrivals) and self._arrivals[self._made] <= now - self._start
        self._wanted = now if behind else now + NAP
        if behind:
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_at(self._loop.time() + NAP, self._turn)

    def _complete_due(self, now_ms: int) -> None:
        complete = self._peer.complete
        for due in range(self._due, now_ms + 1):
            for handle in self._calendar.pop(due, ()):
                complete(handle)
        self._due = now_ms + 1

    def _make_due(self, now: float) -> None:
        until = min(self._made + BATCH, len(self._arrivals))
        count = bisect_right(self._arrivals, now - self._start, self._made, until) - self._made
        request, calendar, now_ms = self._peer.request, self._calendar, int(now * 1000) + 1
        for keys, timeout, latency in islice(self._requests, count):
            if latency is None:
                request(keys, timeout, now + timeout, inf, bytes(100))
            else:
                handle = request(keys, timeout, now + timeout, now + latency / 1000, bytes(100))
                calendar[now_ms + latency].append(handle)
        self._made += count
        if count:
            self._last_arrival = monotonic()
        if now - self._start > self._give_up_after:
            self._arrivals = self._arrivals[: self._made]


class Collector:
    """Measures the time spent in the garbage collector."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self.passes = [0, 0, 0]
        self._begin = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = perf_counter()
            return
        spent = perf_counter() - self._begin
        self.seconds += spent
        self.longest = max(self.longest, spent)
        self.passes[info["generation"]] += 1

    def close(self) -> None:
        gc.callbacks.remove(self._note)


class Turns:
    """Measures the longest loop iteration within the block."""

    def __enter__(self) -> Turns:
        self._loop = asyncio.get_running_loop()
        self._running = True
        self.longest = 0.0
        self._last = perf_counter()
        self._tick()
        return self

    def _tick(self) -> None:
        now = perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        if self._running:
            self._loop.call_soon(self._tick)

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._tick()

    @property
    def longest_ms(self) -> float:
        return self.longest * 1e3
