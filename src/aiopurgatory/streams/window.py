"""The windows of a worker's tails: the newest events of each topic, all together bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict, deque
from sys import getsizeof
from typing import Final, final

from .event import Event

#: Bytes that an event counts in addition to its data, which counts twice.
EVENT_SIZE: Final = 300


@final
class Window:
    """The newest events of a topic, without gaps."""

    __slots__ = ("_events", "_sizes", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._events: deque[Event] = deque()
        self._sizes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def newest(self, count: int, most: int) -> list[Event]:
        """Return the newest *count* events, oldest first, but at most *most* of them."""
        start = len(self._events) - count
        return [self._events[at] for at in range(start, start + min(count, most))]

    def last(self) -> Event | None:
        """Return the newest event; None: it was dropped."""
        return self._events[-1] if self._events else None

    def add(self, event: Event) -> None:
        """Add *event*. The oldest events of all windows go, as far as the bound demands it."""
        size = 2 * getsizeof(event.data) + EVENT_SIZE  # as text, and as a server-sent event
        self._events.append(event)
        self._sizes.append(size)
        self._windows.grow(self, size)

    def drop_oldest(self) -> int:
        """Drop the oldest event. Returns: its bytes."""
        self._events.popleft()
        return self._sizes.popleft()

    def clear(self) -> None:
        self._windows.shrink(self, sum(self._sizes))
        self._events.clear()
        self._sizes.clear()


@final
class Windows:
    """Bounds the bytes of all windows. Args: most: bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = 0
        #: The windows with events; the next one to lose its oldest event comes first.
        self._turn: OrderedDict[Window, None] = OrderedDict()

    def grow(self, window: Window, size: int) -> None:
        """*window* has one event more."""
        self._turn.setdefault(window)
        self.size += size
        while self.size > self._most:
            oldest = next(iter(self._turn))
            self.size -= oldest.drop_oldest()
            if len(oldest):
                self._turn.move_to_end(oldest)
            else:
                del self._turn[oldest]

    def shrink(self, window: Window, size: int) -> None:
        """*window* gives up its events."""
        self._turn.pop(window, None)
        self.size -= size
