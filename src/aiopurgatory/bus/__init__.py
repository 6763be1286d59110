"""Publishes keys to other processes, machines and event loops, so that these check them as well.

The buses on a server are imported by path: ``aiopurgatory.bus.postgres``, ``aiopurgatory.bus.redis``. To write one for
another server, see ``aiopurgatory.bus.engine``; for a target of your own, ``aiopurgatory.bus.targets``.
"""

from .bus import Bus, BusStatistics
from .engine import BusClosedError, BusConnectError
from .local import LocalBus

__all__ = [
    "Bus",
    "BusClosedError",
    "BusConnectError",
    "BusStatistics",
    "LocalBus",
]
