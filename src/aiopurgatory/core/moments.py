"""Seconds to nanoseconds and back, so that nothing is ever early (I1).

Clocks and users speak float seconds, the timer speaks integers. A deadline becomes the first nanosecond that is, as a
float, not before it; the time becomes a nanosecond that is, as a float, not after it. So "deadline reached" in integers
implies it in the users' floats, and no tolerance is needed anywhere.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any, Final

NS: Final = 1_000_000_000
#: What a signed 64-bit count of nanoseconds holds, 146 years, is the timer's range: a longer timeout is none.
RANGE: Final = (1 << 62) / NS


def rounded_up(seconds: float) -> int:
    """A nanosecond at or after *seconds*, the first one but for the float's own grain."""
    ns = int(seconds * NS)
    step = 1
    while ns / NS < seconds:
        ns += step
        step += step  # a float of many days is coarser than a nanosecond
    return ns


def rounded_down(seconds: float) -> int:
    """A nanosecond at or before *seconds*, the last one but for the float's own grain."""
    ns = int(seconds * NS)
    step = 1
    while ns / NS > seconds:
        ns -= step
        step += step
    return ns


def reached_at(ns: int) -> float:
    """A time in seconds at which *ns* is reached: rounded_down(reached_at(ns)) >= ns."""
    seconds = ns / NS
    while rounded_down(seconds) < ns:
        seconds = nextafter(seconds, inf)
    return seconds


def timeout_seconds(timeout: Any) -> float:
    """A user's timeout as float seconds; inf for none.

    Raises: TypeError: not a number; ValueError: negative or NaN.
    """
    if isinstance(timeout, float):
        value = timeout
    elif timeout is None:
        return inf
    elif isinstance(timeout, (str, bytes, bytearray)) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    else:
        try:
            value = float(timeout)
        except OverflowError:
            value = inf if timeout > 0 else -inf
    if not value >= 0.0:
        raise ValueError(f"timeout must be >= 0 s, got {timeout!r}")
    return value if value < RANGE else inf
