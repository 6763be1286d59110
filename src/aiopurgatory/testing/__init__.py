"""Tools for tests of code that waits: a manual clock, a check of a purgatory's invariants, and a bus.

The pytest plugin ``pytest_aiopurgatory`` offers fixtures for the clock and the purgatory.
"""

from .bus import MemoryBus, MemoryServer
from .clock import ManualClock, until_pending
from .leftovers import check_invariants

__all__ = [
    "ManualClock",
    "MemoryBus",
    "MemoryServer",
    "check_invariants",
    "until_pending",
]
