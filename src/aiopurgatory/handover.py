"""Hands keys over from other threads to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable


class Handover:
    """Merges calls from any thread into few wake-ups of the loop."""

    __slots__ = ("_keys", "_lock")

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}
        # The only lock (I14). Reentrant: a signal handler may take it while its thread holds it.
        self._lock = threading.RLock()

    def put(self, key: Hashable, loop: asyncio.AbstractEventLoop, check: Callable[[Hashable], object]) -> None:
        """Call *check* with *key* in *loop*, soon."""
        with self._lock:
            first = not self._keys
            self._keys[key] = None
        if first:
            try:
                loop.call_soon_threadsafe(self._take, check)
            except RuntimeError:
                if not loop.is_closed():
                    raise

    def _take(self, check: Callable[[Hashable], object]) -> None:
        with self._lock:
            keys = self._keys
            self._keys = {}
        for key in keys:
            try:
                check(key)
            except Exception as exc:  # of comparing the key: the others are checked even so
                message = "aiopurgatory: a key cannot be checked"
                asyncio.get_running_loop().call_exception_handler({"message": message, "exception": exc})
