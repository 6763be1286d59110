"""A moment that several waits share, in place of a timeout for each."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, final

from .core.nanoseconds import NS, ceil_ns, floor_ns, seconds_or_inf


@final
class Deadline:
    """A moment by the purgatory's clock, made by ``Purgatory.deadline()``: the *timeout* of several waits.

        deadline = purgatory.deadline(30.0)
        lease = await purgatory.wait_for(take, [("jobs", 7)], timeout=deadline, on_undelivered=put)
        result = await purgatory.wait_for(lambda: results.get(7), [("results", 7)], timeout=deadline)

    It also serves as the *timeout* of watch(), follow(), reschedule() and timeout(). ``float(deadline)`` is the time
    left, in seconds: 0 or less once it has passed, inf for none. A wait reads it once, when it begins.
    """

    __slots__ = ("_at", "_time")

    def __init__(self, time: Callable[[], float], seconds: Any) -> None:
        self._time: Final = time
        rest = max(seconds_or_inf("seconds", seconds), 0.0)
        #: In nanoseconds: a difference of floats could be off in its last digit, which costs a tick.
        self._at: Final = None if rest == inf else ceil_ns(time()) + ceil_ns(rest)

    def __float__(self) -> float:
        return inf if self._at is None else (self._at - floor_ns(self._time())) / NS

    def __repr__(self) -> str:
        return f"<Deadline in {float(self):.3g} s>"
