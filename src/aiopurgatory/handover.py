"""Keys that other threads hand over to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable


class Handover:
    """Many calls from any thread become few wake-ups of the loop."""

    __slots__ = ("_keys", "_lock")

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}
        # The one lock (I14), and one that a signal handler may take while its thread holds it.
        self._lock = threading.RLock()

    def put(self, key: Hashable, loop: asyncio.AbstractEventLoop, check: Callable[[Hashable], object]) -> None:
        """Have *check* called with *key*, in *loop*."""
        with self._lock:
            first = not self._keys
            self._keys[key] = None
        if first:
            try:
                loop.call_soon_threadsafe(self._take, check)
            except RuntimeError:
                if not loop.is_closed():
                    raise

    def clear(self) -> None:
        """Forget what a loop that is gone has not taken."""
        with self._lock:
            self._keys = {}

    def _take(self, check: Callable[[Hashable], object]) -> None:
        with self._lock:
            keys = self._keys
            self._keys = {}
        for key in keys:
            check(key)
