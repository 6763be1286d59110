"""Tools for tests of code that waits: a manual clock, checks of what a purgatory holds, and a bus.

The pytest plugin ``pytest_aiopurgatory`` offers fixtures for the clock and the purgatory.
"""

from .leftovers import check_empty, check_invariants
from .manual_clock import ManualClock, until_pending
from .memory_bus import MemoryBus, MemoryServer

__all__ = [
    "ManualClock",
    "MemoryBus",
    "MemoryServer",
    "check_empty",
    "check_invariants",
    "until_pending",
]
