"""The policy: how long clients may wait, and how many may wait."""

from __future__ import annotations

from dataclasses import dataclass
from random import random
from typing import final

from ..arguments import require, require_int, require_seconds


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All waits and limits of clients, of long polls and of event streams. Times are in seconds.

    (The limits of the source, ``max_reads`` and ``max_body_bytes``, are set on LongPolling. How a route reads a request
    is set on the route.)

    The wait that a client asks for is an upper bound (RFC 7240). If nothing happens, a poll with that wait ends between
    wait - margin - jitter x wait and wait - margin, evenly spread.

    Args:
        max_wait: the longest wait, also for a client that asks for none; default 25. Many proxies give up on a silent
            connection after 30 s.
        jitter: the largest share of the wait to take off at random, so that clients don't return in a herd; default
            1/16.
        margin: subtracted from the wait for the answer's way to the client, at most half of the wait; default 0.2.
        linger: how long notify() waits before it answers, so that one answer covers several events; default 0.
        heartbeat: time without an event after which a stream sends a comment; default 15. It shows proxies and clients
            that the connection works.
        stall: how long a stream may take to await the source and send the event, together; default 30. Give the reads
            shorter timeouts.
        max_age: time after which a stream ends, and its client reconnects; default 3,600. None: no limit. It varies at
            random by *jitter*.
        max_per_group: refuse more parked polls and streams of one group than this; None (default): no limit. The limit
            for all together is the purgatory's ``max_pending``.
        retry_after: the lowest and the highest Retry-After, in whole seconds; default (1, 3). A refused client is told
            a random number between them.

    Raises: TypeError, ValueError: an argument of another type, or out of its range.
    """

    max_wait: float = 25.0
    jitter: float = 1 / 16
    margin: float = 0.2
    linger: float = 0.0
    heartbeat: float = 15.0
    stall: float = 30.0
    max_age: float | None = 3600.0
    max_per_group: int | None = None
    retry_after: tuple[int, int] = (1, 3)

    def __post_init__(self) -> None:
        require_seconds("max_wait", self.max_wait, 1e-9, 1e6)
        require(0 <= self.jitter <= 1, "jitter", "a number from 0 to 1", self.jitter)
        require_seconds("margin", self.margin, 0.0, 1e6)
        require_seconds("linger", self.linger, 0.0, 1e6)
        require_seconds("heartbeat", self.heartbeat, 1e-3, 1e6)
        require_seconds("stall", self.stall, 1e-3, 1e6)
        if self.max_age is not None:
            require_seconds("max_age", self.max_age, 1e-3, 1e6)
        if self.max_per_group is not None:
            require_int("max_per_group", self.max_per_group, 1)
        low, high = self.retry_after
        require_int("retry_after", low, 0)
        require_int("retry_after", high, 0)
        require(low <= high, "retry_after", "two ints, the lower one first", self.retry_after)

    def applied(self, asked: float | None) -> float:
        """Return the wait of a client that asked for *asked* seconds; None: it asked for none. 0: answer at once."""
        return self.max_wait if asked is None or asked > self.max_wait else asked

    def age(self) -> float | None:
        """Return how long a stream may last: not the same for all, so that clients don't return in a herd."""
        return self.max_age and self.max_age * (1 - random() * self.jitter)

    def timeout(self, wait: float) -> float:
        """Return how long to park a poll with the wait *wait*."""
        margin = self.margin if 2 * self.margin < wait else wait / 2
        left = wait - margin - random() * self.jitter * wait
        return left if left > 0 else 0.0
