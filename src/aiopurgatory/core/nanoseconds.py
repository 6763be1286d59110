"""Seconds to nanoseconds and back, so that nothing is ever early (I1).

Clocks and users speak float seconds; the timer speaks integers. A float stands for the decimal of nine digits that it
is nearest to, if there is one: 0.1 is 100,000,000 ns, and 0.1 + 0.2 is 0.3. Sums are made of nanoseconds, because a sum
of floats may be off by its last digit, and that costs a tick. Any other float is rounded to the safe side: a deadline
up, the time it is now down. Floats hold nanoseconds up to 97 days; beyond, each is what it is, exactly.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any, Final

#: Nanoseconds per second.
NS: Final = 1_000_000_000
#: What a signed 64-bit count of nanoseconds holds, 146 years, is the timer's range: a longer timeout is none.
RANGE: Final = (1 << 62) / NS


#: Seconds, 97 days: floats from here on are coarser than a nanosecond. Their fraction has 29 bits at most, so that it
#: is multiplied by 10^9 without being rounded.
COARSE: Final = 8388608.0


def ceil_ns(seconds: float) -> int:
    """The nanosecond that *seconds* is, or the next one."""
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
    """The nanosecond that *seconds* is, or the one before."""
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
    # The product may be less than the nanosecond that *seconds* is.
    return ns + 1 if (ns + 1) / NS <= seconds else ns


def ns_to_seconds(ns: int) -> float:
    """Seconds at which *ns* is reached: floor_ns(ns_to_seconds(ns)) >= ns."""
    seconds = ns / NS
    while floor_ns(seconds) < ns:
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
