"""Tools for tests of code that waits: a manual clock, a check of a purgatory's invariants, a client of events, a bus.

The pytest plugin ``pytest_aiopurgatory`` offers fixtures for the clock and the purgatory.
"""

from .bus import MemoryBus, MemoryServer
from .clock import ManualClock
from .invariants import check_invariants
from .sent_events import RefusedError, SentEvent, SentEvents, events
from .settling import until_pending

__all__ = [
    "ManualClock",
    "MemoryBus",
    "MemoryServer",
    "RefusedError",
    "SentEvent",
    "SentEvents",
    "check_invariants",
    "events",
    "until_pending",
]
