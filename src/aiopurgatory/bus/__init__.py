"""Publishes keys to other processes and machines, so that these check them, too.

The engines are imported by path: ``aiopurgatory.bus.postgres``, ``aiopurgatory.bus.redis``.
"""

from .bus import Bus, BusStatistics
from .engine import BusClosedError, BusConnectError, Engine, Link
from .listeners import Listeners
from .targets import Target

__all__ = ["Bus", "BusClosedError", "BusConnectError", "BusStatistics", "Engine", "Link", "Listeners", "Target"]
