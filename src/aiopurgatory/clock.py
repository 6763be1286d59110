"""Where the time comes from, and what wakes the clock task."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol


class ClockHandle(Protocol):
    """What Clock.call_at() returns."""

    def cancel(self) -> object:
        """Do not call."""
        ...


class Clock(Protocol):
    """A monotonic time, and a way to be called at one. ``aiopurgatory.testing.ManualClock`` is one for tests."""

    def time(self) -> float:
        """The time in seconds; never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> ClockHandle:
        """Call *callback* once it is *when*, or on a later loop iteration if it is already.

        Firing early is allowed: the clock task asks for the time() again and sleeps on.
        """
        ...


class LoopClock:
    """The default: ``time.monotonic``, and the running loop's own timer to sleep.

    Not ``loop.time()``, which uvloop floors to milliseconds.
    """

    time = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The clock task's, and not of whoever happens to arm it: hooks see the same variables either way.
        self._context = copy_context()

    def call_at(self, when: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        # Whole milliseconds, up: uvloop would round to the nearest one, fire early and, for the last fraction, spin.
        # On asyncio nothing is lost, its selector waits in milliseconds.
        return self._loop.call_at(math.ceil(round(when * 1e3, 3)) / 1e3, callback, context=self._context)
