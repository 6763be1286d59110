"""For tests of code that waits: time that moves when told to, a check of everything a purgatory promises itself, and a
bus in memory. The pytest plugin ``pytest_aiopurgatory`` makes fixtures of them.
"""

from .bus import MemoryBus, MemoryServer
from .clock import ManualClock
from .invariants import check_invariants
from .settling import until_pending

__all__ = ["ManualClock", "MemoryBus", "MemoryServer", "check_invariants", "until_pending"]
