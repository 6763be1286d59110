"""Helpers of the tests of the asyncio face: an operation, and a counting clock."""

from __future__ import annotations

from collections.abc import Callable

from aiopurgatory import DelayedOperation
from aiopurgatory.testing import ManualClock


class Waiting(DelayedOperation[str]):
    """Completes at the first check after it was made *ready*."""

    __slots__ = ("ready",)

    def __init__(self, timeout: float | None = None) -> None:
        super().__init__(timeout)
        self.ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> str:
        return "late" if self.expired else "in time"


class CountingClock:
    """A manual clock that keeps count of the handles that are armed.

    Args: early: seconds by which it fires too early where it can, as the timers of event loops do.
    """

    def __init__(self, start: float = 0.0, early: float = 0.0) -> None:
        self.manual = ManualClock(start)
        self.early = early
        self.armed: list[float] = []
        self.cancelled = 0

    def time(self) -> float:
        return self.manual.time()

    def call_at(self, when: float, callback: Callable[[], object]) -> CountedHandle:
        self.armed.append(when)
        fires_at = when - self.early
        handle = self.manual.call_at(fires_at if fires_at > self.time() else when, callback)
        return CountedHandle(self, handle.cancel)

    def handles(self, fired: int) -> int:
        """How many handles are armed now, when *fired* have fired."""
        return len(self.armed) - self.cancelled - fired


class CountedHandle:
    def __init__(self, clock: CountingClock, cancel: Callable[[], object]) -> None:
        self.clock = clock
        self.cancel_handle = cancel

    def cancel(self) -> None:
        self.clock.cancelled += 1
        self.cancel_handle()
