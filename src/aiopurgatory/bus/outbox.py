"""The keys that a bus has not sent yet, or that the server has not acknowledged yet (R2, R5 of exchange.py)."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from math import inf
from typing import Final, TypeAlias

from .keys import EVERY_KEY

#: The most keys in the outbox before it collapses.
MAX_OUTBOX: Final = 10_000
#: Characters of keys to send before the next acknowledgement.
MAX_BATCH: Final = 250_000

#: The serial number of a key, the time of its publish, its line, and its limit; inf: none.
_Entry: TypeAlias = tuple[int, float, str, float]
#: Stands for every key in a collapsed outbox.
_ALL: Final = object()


class Outbox:
    """Keys that the server has not acknowledged, in the order in which they were published (R2, R5)."""

    def __init__(self) -> None:
        #: The serial numbers rise along both dicts.
        self._waiting: dict[Hashable, _Entry] = {}
        self._in_flight: dict[Hashable, _Entry] = {}
        #: The number of the last key.
        self.serial = 0
        #: The number of keys that the `*` in each dict replaces, minus one. Repeated keys count: it remembers none.
        self._collapsed = self._collapsed_in_flight = 0

    def __len__(self) -> int:
        """The number of keys, including all that collapsed."""
        return len(self._waiting) + len(self._in_flight) + self._collapsed + self._collapsed_in_flight

    def put(self, key: Hashable, line: str, now: float, limit: float = inf) -> None:
        # A key in flight is sent again: others may have checked it before its state changed again.
        if _ALL in self._waiting:
            self._collapsed += 1
            return
        self.serial += 1
        self._add(key, (self.serial, now, line, limit))
        if len(self._waiting) + len(self._in_flight) > MAX_OUTBOX:
            self._collapse()

    def take(self) -> list[str]:
        """Put the next keys in flight. Returns: all lines in flight."""
        size = 0
        for key, entry in self._waiting.items():
            if size > MAX_BATCH:
                break
            self._in_flight[key] = entry
            size += len(entry[2])
        for key in self._in_flight:
            del self._waiting[key]
        self._collapsed_in_flight, self._collapsed = self._collapsed, 0
        return [line if limit == inf else f"{line}\n+{limit}" for _, _, line, limit in self._in_flight.values()]

    def acknowledge(self) -> bool:
        """Drop the keys in flight: the server has them. Returns: whether there were any."""
        were_any = bool(self._in_flight)
        self._in_flight.clear()
        self._collapsed_in_flight = 0
        return were_any

    def put_back(self) -> None:
        """Queue the keys in flight again: the link broke, and they may not have arrived."""
        waiting, self._waiting = self._waiting, self._in_flight
        for key, entry in waiting.items():
            self._add(key, entry)
        self._in_flight = {}
        self._collapsed += self._collapsed_in_flight
        self._collapsed_in_flight = 0
        if _ALL in self._waiting:
            self._collapse()

    def has_acknowledged(self, serial: int) -> bool:
        """Whether every key up to the one with this number is acknowledged."""
        oldest = next(chain(self._in_flight.values(), self._waiting.values()), None)
        return oldest is None or oldest[0] > serial

    def oldest_at(self) -> float:
        """Return the time of the oldest key's publish; infinity if there is none. May be called in any thread."""
        for entries in (self._in_flight, self._waiting):
            for _, published_at, _, _ in list(entries.values())[:1]:  # a copy: the loop's thread may publish
                return published_at
        return inf

    def _add(self, key: Hashable, entry: _Entry) -> None:
        """Queue *key*, or add the limit of *entry* to its own. It keeps its number, so that flush() waits for it."""
        older = self._waiting.get(key)
        self._waiting[key] = entry if older is None else (*older[:3], older[3] + entry[3])

    def _collapse(self) -> None:
        serial, published_at, _, _ = next(iter(self._waiting.values()))
        self._collapsed += len(self._waiting) - 1
        self._waiting = {_ALL: (serial, published_at, EVERY_KEY, inf)}
