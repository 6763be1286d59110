"""For tests of code that waits: time that moves when told to, and a check of everything a purgatory promises itself."""

from .clock import ManualClock
from .invariants import check_invariants

__all__ = ["ManualClock", "check_invariants"]
