"""Hands keys over from other threads to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from time import perf_counter


class Handover:
    """Merges calls from any thread into few wake-ups of the loop, and works them off in slices.

    Args: budget: seconds that a slice may take of one loop iteration.
    """

    __slots__ = ("_budget", "_is_coming", "_keys", "_lock", "_taken")

    def __init__(self, budget: float) -> None:
        self._budget = budget
        #: Keys put since the last were taken; and those taken, in reverse order.
        self._keys: dict[Hashable, None] = {}
        self._taken: list[Hashable] = []
        #: Whether the loop is going to call _take().
        self._is_coming = False
        # The only lock (I14). Reentrant: a signal handler may take it while its thread holds it.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """The keys put since the loop last took some."""
        return len(self._keys)

    def put(self, key: Hashable, loop: asyncio.AbstractEventLoop, check: Callable[[Hashable], object]) -> None:
        """Call *check* with *key* in *loop*, soon."""
        with self._lock:
            self._keys[key] = None
            if self._is_coming:
                return
            try:
                loop.call_soon_threadsafe(self._take, loop, check)
            except RuntimeError:
                if not loop.is_closed():
                    raise
            # After the call that it promises: if that is interrupted, as by Ctrl-C, the next put() makes it.
            self._is_coming = True

    def _take(self, loop: asyncio.AbstractEventLoop, check: Callable[[Hashable], object]) -> None:
        """Call *check* with each key, the oldest first. Keys beyond the budget wait for the next iteration (I8)."""
        stop = perf_counter() + self._budget
        more = True
        try:
            while more := self._has_more():
                key = self._taken.pop()
                try:
                    check(key)
                except (Exception, asyncio.CancelledError) as exc:  # of comparing the key: the others are checked
                    message = "aiopurgatory: a key cannot be checked"
                    loop.call_exception_handler({"message": message, "exception": exc})
                if perf_counter() >= stop:
                    break
        finally:
            if more:
                loop.call_soon(self._take, loop, check)

    def _has_more(self) -> bool:
        if not self._taken:
            with self._lock:
                # First: a signal handler may call put() between any two of these statements.
                self._is_coming = False
                keys, self._keys = self._keys, {}
                self._taken = list(reversed(keys))
                if keys:
                    self._is_coming = True
        return bool(self._taken)
