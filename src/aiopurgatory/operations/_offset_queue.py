"""A queue of the offsets that operations wait for, lowest first, with the number of waits for each."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

#: Offsets without waits are swept when they outnumber the offsets with waits by more than this.
SWEEP_SLACK: Final = 32


@final
class OffsetQueue:
    """Counts the waits by offset. Call add() when a wait begins, and discard() when it ends without pop()."""

    __slots__ = ("_ascending", "_strays", "waiting")

    def __init__(self) -> None:
        #: The number of waits, by offset.
        self.waiting: Final[dict[int, int]] = {}
        # The same offsets, and some without waits. Most arrive in ascending order; the others go into a heap, where
        # each costs several times as much.
        self._ascending: Final[deque[int]] = deque()
        self._strays: Final[list[int]] = []

    def add(self, offset: int) -> None:
        """Count one more wait for *offset*. Cost: O(1) if it is the highest, else O(log offsets)."""
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
        """Count one wait less for *offset*, which was not popped."""
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
        """Return False if nothing waits for *value* or a lower offset."""
        ascending, strays = self._ascending, self._strays
        return (bool(ascending) and ascending[0] <= value) or (bool(strays) and strays[0] <= value)

    def pop(self, value: int) -> int | None:
        """Remove and return the lowest offset up to *value* that has waits; None if there is none."""
        ascending, strays, waiting = self._ascending, self._strays, self.waiting
        while self.may_pop(value):
            is_stray = bool(strays) and (not ascending or strays[0] < ascending[0])
            offset = heappop(strays) if is_stray else ascending.popleft()
            if waiting.pop(offset, 0):
                return offset
        return None
