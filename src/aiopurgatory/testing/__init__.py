"""For tests of code that waits: time that moves when told to, a check of everything a purgatory promises itself, and a
bus in memory.
"""

from .bus import MemoryBus, MemoryServer
from .clock import ManualClock
from .invariants import check_invariants

__all__ = ["ManualClock", "MemoryBus", "MemoryServer", "check_invariants"]
