"""The pauses between attempts, wherever something is tried again."""

from __future__ import annotations

from random import random


def backoff(failures: float, first: float, longest: float) -> float:
    """Return the seconds to wait before the next attempt. Up to half is random, so that many do not return in a herd.

    Args: failures: each doubles the pause. first: seconds after none of them. longest: seconds, at most.
    """
    return float(min(first * 2.0 ** min(failures, 32.0), longest) * (0.5 + random() / 2))
