"""Put four timer designs behind one interface: a heap, Netty's wheel, Linux's wheel and ours, each with a 1 ms tick.

Time is an argument, in integer nanoseconds; there is no clock. The designs are written from descriptions, for a single
thread. Leaving out locks and hand-over between threads only makes them faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, final

from aiopurgatory.timer import Timer, TimerTask

from . import timers_hashed, timers_linux
from .timers_hashed import TICK, HashedWheel
from .timers_linux import LinuxWheel


class TimerDesign(Protocol):
    """A timer. ``expire`` is called with items that have left it; it must not add or cancel."""

    def make(self, deadline: int) -> Any:
        """An item. In a purgatory it is the operation, so making one is not part of add()."""

    def add(self, item: Any) -> None:
        """Add *item*, which must be in no timer. If it is due already, it expires at the next advance or tick."""

    def cancel(self, item: Any) -> None:
        """Remove *item*, if it is there."""

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        """Pass all due items to *expire*; return their number."""

    def next_expiration(self) -> int | None:
        """Return when it must be advanced next; None: nothing is pending."""

    def __len__(self) -> int:
        """Pending items."""


@final
class HeapItem:
    """*sequence* identifies the item's valid entry in the heap among those left by cancels; 0: there is none."""

    __slots__ = ("deadline", "sequence")

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.sequence = 0


@final
class Heap:
    """A binary heap. A cancelled entry stays until it reaches the front.

    Args: prune: rebuild the heap when most of a large one is stale.

    Source: Java's DelayQueue as in Kafka's old purgatory; the prune is trio's (asyncio has one, too).
    """

    __slots__ = ("_count", "_heap", "_prune", "_sequence")

    def __init__(self, prune: bool = True) -> None:
        self._heap: list[tuple[int, int, HeapItem]] = []
        self._prune = prune
        self._count = 0
        self._sequence = 0

    def __len__(self) -> int:
        return self._count

    def make(self, deadline: int) -> HeapItem:
        return HeapItem(deadline)

    def add(self, item: HeapItem) -> None:
        self._sequence += 1
        item.sequence = self._sequence
        heappush(self._heap, (item.deadline, self._sequence, item))
        self._count += 1

    def cancel(self, item: HeapItem) -> None:
        if item.sequence == 0:
            return
        item.sequence = 0
        self._count -= 1
        if self._prune and len(self._heap) > 2 * self._count + 1_000:
            self._heap = [entry for entry in self._heap if entry[2].sequence == entry[1]]
            heapify(self._heap)

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        heap = self._heap
        expired = 0
        while heap and heap[0][0] <= now:
            _, sequence, item = heappop(heap)
            if item.sequence == sequence:
                item.sequence = 0
                self._count -= 1
                expired += 1
                expire(item)
        return expired

    def next_expiration(self) -> int | None:
        heap = self._heap
        while heap:
            deadline, sequence, item = heap[0]
            if item.sequence == sequence:
                return deadline
            heappop(heap)
        return None


@final
class Ours:
    """aiopurgatory's Timer. It refuses timers that are due already, and in a purgatory the caller expires them; here,
    advance() does. A benchmark that adds no such timer takes ``timer`` itself, which has the same methods.
    """

    __slots__ = ("_due", "timer")

    def __init__(self, tick: int = TICK, wheel_size: int = 20) -> None:
        self.timer = Timer(tick, wheel_size)
        self._due: dict[TimerTask, None] = {}

    def __len__(self) -> int:
        return len(self.timer) + len(self._due)

    def make(self, deadline: int) -> TimerTask:
        return TimerTask(deadline)

    def add(self, item: TimerTask) -> None:
        if not self.timer.add(item):
            self._due[item] = None

    def cancel(self, item: TimerTask) -> None:
        if not self.timer.cancel(item):
            self._due.pop(item, None)

    def advance(self, now: int, expire: Callable[[Any], object]) -> int:
        due, self._due = self._due, {}
        for item in due:
            expire(item)
        return len(due) + self.timer.advance(now, expire)

    def next_expiration(self) -> int | None:
        return self.timer.now if self._due else self.timer.next_expiration()


DESIGNS: Final[dict[str, Callable[[], TimerDesign]]] = {
    "heap": Heap,
    "hashed": HashedWheel,
    "linux": LinuxWheel,
    "ours": Ours,
}


def form_of_peers() -> str:
    """Return the form of the designs, except ours: "compiled" or "interpreted"."""
    modules = (sys.modules[__name__], timers_hashed, timers_linux)
    (compiled,) = {not str(module.__file__).endswith(".py") for module in modules}  # all, or none
    return "compiled" if compiled else "interpreted"
