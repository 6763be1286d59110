"""Counts the time that this process spends in Python's garbage collector: the loop stands still meanwhile."""

from __future__ import annotations

import gc
import time
from typing import Any


class CollectionTime:
    """Counts from the first start() on. It is never removed: it costs less than a microsecond per collection."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._begun = 0.0

    def start(self) -> None:
        """Start to count. A second call does nothing."""
        if self._count not in gc.callbacks:
            gc.callbacks.append(self._count)

    def spent_us(self) -> int:
        """Return the microseconds in all collections since the start."""
        return int(self._spent * 1e6)

    def _count(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self._spent += time.perf_counter() - self._begun


#: The one of this process.
COLLECTIONS = CollectionTime()
