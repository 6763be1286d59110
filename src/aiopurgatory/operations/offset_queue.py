"""The offsets that something waits for, and how much: the lowest comes out first."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

#: Offsets that nothing waits for any more are swept when they are more than those that something does, and this.
SWEEP_SLACK: Final = 32


@final
class OffsetQueue:
    """Counts the waits by offset. Who is counted must say so when it ends."""

    __slots__ = ("_ascending", "_strays", "waiting")

    def __init__(self) -> None:
        #: How many wait, by offset.
        self.waiting: Final[dict[int, int]] = {}
        # The same offsets, with some that nothing waits for any more. Mostly they come in order; those that do not are
        # in a heap, where each costs several times as much.
        self._ascending: Final[deque[int]] = deque()
        self._strays: Final[list[int]] = []

    def add(self, offset: int) -> None:
        """One more waits for *offset*. Cost: O(1) if none waits for a higher one, else O(log offsets)."""
        waiting, ascending = self.waiting, self._ascending
        if offset in waiting:
            waiting[offset] += 1
            return
        waiting[offset] = 1
        if not ascending or offset > ascending[-1]:
            ascending.append(offset)
        else:
            heappush(self._strays, offset)

    def discard(self, offset: int) -> None:
        """One less waits for *offset*, which was not popped."""
        waiting, ascending, strays = self.waiting, self._ascending, self._strays
        count = waiting[offset]
        if count > 1:
            waiting[offset] = count - 1
            return
        del waiting[offset]
        if len(ascending) + len(strays) > 2 * len(waiting) + SWEEP_SLACK:
            strays.clear()
            ascending.clear()
            ascending.extend(sorted(waiting))

    def may_pop(self, value: int) -> bool:
        """False if nothing waits for *value* or a lower offset."""
        ascending, strays = self._ascending, self._strays
        return (bool(ascending) and ascending[0] <= value) or (bool(strays) and strays[0] <= value)

    def pop(self, value: int) -> int | None:
        """Drop the lowest offset up to *value* that something waits for, and return it; None if there is none."""
        ascending, strays, waiting = self._ascending, self._strays, self.waiting
        while self.may_pop(value):
            is_stray = bool(strays) and (not ascending or strays[0] < ascending[0])
            offset = heappop(strays) if is_stray else ascending.popleft()
            if waiting.pop(offset, 0):
                return offset
        return None
