"""Publishes keys to other processes, machines and event loops, so that these check them, too.

The buses on a server are imported by path: ``aiopurgatory.bus.postgres``, ``aiopurgatory.bus.redis``.
"""

from .bus import Bus, BusStatistics
from .engine import BusClosedError, BusConnectError, Engine, Link
from .listeners import Listeners
from .local import LocalBus
from .targets import Target

__all__ = [
    "Bus",
    "BusClosedError",
    "BusConnectError",
    "BusStatistics",
    "Engine",
    "Link",
    "Listeners",
    "LocalBus",
    "Target",
]
