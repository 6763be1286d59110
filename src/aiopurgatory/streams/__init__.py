"""Event streams: runs and topics that any number of listeners follow, from any process, each event once, in order.

RedisLog is in ``aiopurgatory.streams.redis``, PostgresLog in ``aiopurgatory.streams.postgres``. To write a log for
another server, see ``aiopurgatory.streams.store``.
"""

from .event import EndedError, Event, StoreDownError, StoreError, TopicExistsError
from .log import EventLog, LogStatistics
from .memory import MemoryLog
from .position import Follow
from .producer import Run

__all__ = [
    "EndedError",
    "Event",
    "EventLog",
    "Follow",
    "LogStatistics",
    "MemoryLog",
    "Run",
    "StoreDownError",
    "StoreError",
    "TopicExistsError",
]
