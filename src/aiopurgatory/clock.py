"""Clocks tell the time and wake the clock task.

Also: the loop that runs here, how often its task was cancelled, and the pauses between attempts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from random import random
from typing import Protocol


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raises: RuntimeError: there is none, or only trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "no running event loop of asyncio: aiopurgatory needs asyncio or uvloop, and does not run on trio; with "
            "AnyIO, use its asyncio backend: anyio.run(main, backend='asyncio')"
        ) from None


def cancellations() -> int:
    """Return how often the running task was cancelled, to tell that from the end of a future that it awaits.

    It may go on nevertheless, as in a shielded clean-up. So compare this with its result from before an await.

    A function of its own: a frame that keeps its task, and is kept by that task's exception, is a cycle.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def backoff(failures: float, first: float, longest: float) -> float:
    """Return the seconds to wait before the next attempt. Up to half is random, so that many do not return in a herd.

    Args: failures: each doubles the pause. first: seconds after none of them. longest: seconds, at most.
    """
    return float(min(first * 2.0 ** min(failures, 32.0), longest) * (0.5 + random() / 2))


class ClockHandle(Protocol):
    """The handle that Clock.call_at() returns."""

    def cancel(self) -> object:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """A monotonic clock that can also call a function at a given time. For tests, see ``testing.ManualClock``."""

    def time(self) -> float:
        """Return the time in seconds. It must never go back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> ClockHandle:
        """Call *callback* at *when*, in seconds; if that has passed, on a later loop iteration.

        Firing early is allowed: the clock task reads time() again and goes back to sleep.
        """
        ...


class LoopClock:
    """The default clock: ``time.monotonic``, and the running loop's own timer for sleeping.

    Not ``loop.time()``, which uvloop floors to milliseconds.
    """

    time = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._loop = running_loop()

    def call_at(self, when: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        # Rounded up to whole milliseconds: uvloop would round to the nearest one, fire early and then spin for the last
        # fraction. On asyncio nothing is lost: its selector waits in milliseconds.
        return self._loop.call_at(math.ceil(round(when * 1e3, 3)) / 1e3, callback)
