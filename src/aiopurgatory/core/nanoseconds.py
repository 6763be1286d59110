"""Seconds to nanoseconds and back, so that nothing is ever early (I1).

Clocks and users use float seconds; the timer uses integers. A float that is the nearest one to a decimal of nine digits
stands for that decimal: 0.1 is 100,000,000 ns. Sums are made in nanoseconds, so 0.1 + 0.2 is 0.3: a sum of floats may
be off in its last digit, which costs a tick. Any other float is rounded to the safe side: a deadline up, the current
time down. Floats resolve nanoseconds up to 97 days; beyond that, each is taken at its exact value.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any, Final

from ..arguments import described

#: Nanoseconds per second.
NS: Final = 1_000_000_000
#: Seconds, 146 years: the timer's range. A longer timeout counts as none.
RANGE: Final = (1 << 62) / NS


#: Seconds, 97 days: floats from here on are coarser than a nanosecond. Their fraction has at most 29 bits, so that it
#: can be multiplied by 10^9 without rounding.
COARSE: Final = 8388608.0


def ceil_ns(seconds: float) -> int:
    """Convert *seconds* to nanoseconds, rounded up."""
    if seconds >= COARSE:
        whole = int(seconds)
        fraction = (seconds - whole) * NS
        ns = int(fraction)
        return whole * NS + (ns if ns == fraction else ns + 1)
    ns = int(seconds * NS)
    step = 1
    while ns / NS < seconds:
        ns += step
        step += step
    return ns


def floor_ns(seconds: float) -> int:
    """Convert *seconds* to nanoseconds, rounded down."""
    if seconds >= COARSE:
        whole = int(seconds)
        return whole * NS + int((seconds - whole) * NS)
    ns = int(seconds * NS)
    if ns / NS == seconds:
        return ns
    step = 1
    while ns / NS > seconds:
        ns -= step
        step += step
    # The product may be one nanosecond too low.
    return ns + 1 if (ns + 1) / NS <= seconds else ns


def ns_to_seconds(ns: int) -> float:
    """Convert *ns* to seconds such that floor_ns(ns_to_seconds(ns)) >= ns."""
    seconds = ns / NS
    while floor_ns(seconds) < ns:
        seconds = nextafter(seconds, inf)
    return seconds


def timeout_seconds(timeout: Any) -> float:
    """Return a user's timeout as float seconds: inf for None, 0 if it is negative.

    Raises: TypeError: not a number; ValueError: NaN.
    """
    if isinstance(timeout, float) and 0.0 <= timeout < RANGE:
        return timeout
    return max(seconds_or_inf("timeout", timeout), 0.0)


def seconds_or_inf(parameter: str, value: Any) -> float:
    """Return *value* as float seconds, which may be negative: inf for None, and for more than the timer's range.

    Raises: TypeError: not a number; ValueError: NaN.
    """
    if isinstance(value, float):
        seconds = value
    elif value is None:
        return inf
    elif isinstance(value, (bool, str, bytes, bytearray)) or not hasattr(value, "__float__"):
        raise TypeError(f"{parameter} must be a number of seconds or None, got {described(value)}")
    else:
        try:
            seconds = float(value)
        except OverflowError:
            seconds = inf if value > 0 else -inf
    if seconds != seconds:
        raise ValueError(f"{parameter} must be a number of seconds or None, got {value!r}")
    return seconds if seconds < RANGE else inf
